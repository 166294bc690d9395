--- Counters of a training, where enabled: input tokens, and floating-point operations by models that report them.
--- Each process counts its own; settle() adds them up.
local C = require "accelhost._C"
local batches = require "accelhost.trainer.batches"
local class = require "accelhost.util.class"

local Counts = class.new "Counts"

--- The counts of a training; nil where there is nothing to count.
---@return Counts?
function Counts.of(trainer)
  local counts = Counts()
  counts.trainer, counts.kind = trainer, trainer.args.include_num_input_tokens_seen
  local model = trainer.accelerator:unwrap_model(trainer.model)
  counts.model = model.floating_point_ops and model or nil
  counts.first = trainer.state.num_input_tokens_seen
  return (counts.kind ~= "no" or counts.model) and counts or nil
end

function Counts:init() self.tokens, self.operations = 0, 0 end

-- Numbers of the model's input in a batch: all, or those that the attention mask keeps.
local function tokens_of(self, inputs)
  if self.kind == "non_padding" and C.is_tensor(inputs.attention_mask) then
    return inputs.attention_mask:sum():item()
  end
  local main = batches.main_input(self.trainer.model, inputs)
  return C.is_tensor(main) and main:numel() or 0
end

--- Count a batch.
function Counts:add(inputs)
  if self.kind ~= "no" then self.tokens = self.tokens + tokens_of(self, inputs) end
  if self.model then self.operations = self.operations + self.model:floating_point_ops(inputs) end
end

--- Add the counts of all processes to the state. A collective.
function Counts:settle()
  local state = self.trainer.state
  local own = C.tensor({self.tokens, self.operations}, {dtype = "float64", device = "cpu"})
  local all = self.trainer.accelerator:reduce(own, "sum")
  state.num_input_tokens_seen = state.num_input_tokens_seen + all[0]:item()
  state.total_flos = state.total_flos + all[1]:item()
  self.tokens, self.operations = 0, 0
end

--- Add the tokens to the logged values; of a training also the rate of this call.
---@param logs table
---@param training boolean?
function Counts:report(logs, training)
  if self.kind == "no" then return end
  local seen = self.trainer.state.num_input_tokens_seen
  logs.num_input_tokens_seen = seen
  if not training then return end
  local seconds = math.max(1e-9, C.system.now() - self.trainer._began)
  logs.train_runtime, logs.train_tokens_per_second = seconds, (seen - self.first) / seconds
end

--- Return this process's counts since the last `settle`.
function Counts:state_dict() return {tokens = self.tokens, operations = self.operations} end

--- Restore the counts.
function Counts:load_state_dict(saved) self.tokens, self.operations = saved.tokens, saved.operations end

return Counts
