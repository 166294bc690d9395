--- accelhost.Accelerator: the same script in one process and in many.
--
--   local accelerator = accelhost.Accelerator{gradient_accumulation_steps = 4}
--   model, optimizer, loader = accelerator:prepare(model, optimizer, loader)
--   for inputs, labels in loader do
--     accelerator:accumulate(model, function()
--       accelerator:backward(F.cross_entropy(model(inputs), labels % 2))
--       optimizer:step()
--       optimizer:zero_grad()
--     end)
--   end
--
-- A gradient is the mean over the global batch: sum(w g) / sum(w) over ranks and micro-steps, where w is 1 unless
-- `backward` is given a weight. A plain loss:backward() on a prepared model averages over the ranks too, and adds up
-- over micro-steps, as with PyTorch's DDP.
local C = require "accelhost._C"
local class = require "accelhost.util.class"
local options = require "accelhost.accelerator.options"
local comm = C.comm

---@class Accelerator
---@field device string where models and batches go: the default device
---@field process_index integer this process's rank, from 0
---@field num_processes integer how many processes the job has
---@field local_process_index integer its number among those of this host, from 0
---@field is_main_process boolean rank 0
---@field is_local_main_process boolean the first process of this host
---@field is_last_process boolean the one with the largest rank
---@field sync_gradients boolean whether the current micro-step ends an accumulation window
---@field gradient_accumulation_steps integer as given, and so the next ones
---@field step_scheduler_with_optimizer boolean
---@field split_batches boolean
---@field even_batches boolean
---@field device_placement boolean
---@field mixed_precision string "no"
local Accelerator = class.strict(class.new "Accelerator")

Accelerator.__newindex = class.assign

function Accelerator:__tostring()
  return ("Accelerator(process %d of %d, %s)"):format(self.process_index, self.num_processes, self.device)
end

class.property(Accelerator, "process_index", comm.rank)
class.property(Accelerator, "num_processes", comm.size)
class.property(Accelerator, "local_process_index", comm.local_rank)
class.property(Accelerator, "is_main_process", function() return comm.rank() == 0 end)
class.property(Accelerator, "is_local_main_process", function() return comm.local_rank() == 0 end)
class.property(Accelerator, "is_last_process", function() return comm.rank() == comm.size() - 1 end)

-- Each subject has a file, which gives the class its methods and may return a function: what it remembers of an
-- accelerator that is new, or whose memory is freed, is set up by that.
local subjects = {}
for _, name in ipairs {"prepare", "gradients", "metrics", "processes"} do
  subjects[#subjects + 1] = require("accelhost.accelerator." .. name)(Accelerator)
end

--- An accelerator, configured by how the script was launched.
--
--   accelhost.Accelerator{gradient_accumulation_steps = 4}.num_processes  --> 1
---@param device_placement? boolean default true: models and batches go to the accelerator's device
---@param split_batches? boolean default false: a loader's batch size is that of all processes together
---@param mixed_precision? string only "no": weights and ops keep their dtypes
---@param gradient_accumulation_steps? integer micro-steps of a window, see accumulate
---@param cpu? boolean use the CPU whatever the default device
---@param even_batches? boolean default true: fill up the last round, so that all processes have equally many
---@param step_scheduler_with_optimizer? boolean default true: a prepared scheduler steps when the optimizer does
---@param bucket_cap_mb? number size of the pieces in which gradients are averaged
function Accelerator:init(...)
  local given = options.read(...)
  for name, value in pairs {
    device = given.cpu and "cpu" or C.device.get_default_device(),
    sync_gradients = true,
    gradient_accumulation_steps = given.gradient_accumulation_steps,
    mixed_precision = given.mixed_precision,
    step_scheduler_with_optimizer = given.step_scheduler_with_optimizer,
    split_batches = given.split_batches,
    even_batches = given.even_batches,
    device_placement = given.device_placement,
    _bucket_cap_mb = given.bucket_cap_mb or false,
  } do
    rawset(self, name, value)
  end
  self:_begin()
end

function Accelerator:_begin()
  for _, begin in ipairs(subjects) do begin(self) end
end

return class.guard(Accelerator)
