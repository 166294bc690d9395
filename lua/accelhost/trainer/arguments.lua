--- TrainingArguments: the options of a Trainer, with transformers' names and defaults, checked against each other.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local json = require "accelhost.util.json"
local optimizers = require "accelhost.trainer.optimizer"
local rows = require "accelhost.trainer.rows"

local fail = arguments.fail

local TrainingArguments = class.new "TrainingArguments"

local known = {}
for i, row in ipairs(rows.taken) do known[i] = row[1] end

local signature = {}
for i, row in ipairs(rows.taken) do
  signature[i] = {("%s: %s"):format(row[1], row[2]), row[3], row[4]}
end
local set = arguments.setter("TrainingArguments", signature)

local function is_among(value, list)
  for _, other in ipairs(list) do
    if other == value then return true end
  end
  return false
end

-- Remove the names that are no arguments here: ignore some, and refuse others with the reason.
local function take_foreign(given)
  local rest = {}
  for _, name in ipairs(arguments.sorted_keys(given)) do
    local value, only, reason = given[name], rows.fixed[name], rows.refused[name]
    if reason then fail("TrainingArguments: %s: not supported: %s", name, reason) end
    if only and not is_among(value, only[1]) then
      fail("TrainingArguments: %s: only %s is supported: %s", name, tostring(only[1][1]), only[2])
    end
    if not only then rest[name] = value end
  end
  return rest
end

-- Both save and evaluate at the same updates?
local function check_best(self)
  if self.save_strategy == "best" and self.eval_strategy == "no" then
    fail "TrainingArguments: save_strategy = 'best' needs an eval_strategy: the best is chosen by evaluations"
  end
  if not self.load_best_model_at_end then return end
  if self.eval_strategy == "no" then
    fail "TrainingArguments: load_best_model_at_end needs an eval_strategy other than 'no'"
  end
  if self.save_strategy == "best" then return end
  if self.save_strategy ~= self.eval_strategy then
    fail("TrainingArguments: load_best_model_at_end needs save_strategy = eval_strategy (or 'best'), got '%s' and '%s'",
      self.save_strategy, self.eval_strategy)
  end
  if self.save_strategy == "steps" then
    local times = self.save_steps / self.eval_steps
    if math.abs(times - math.floor(times + 0.5)) > 1e-9 or times < 1 then
      fail("TrainingArguments: load_best_model_at_end needs save_steps to be a multiple of eval_steps, got %g and %g",
        self.save_steps, self.eval_steps)
    end
  end
end

local function check_steps(self)
  for _, name in ipairs {"logging_steps", "eval_steps", "save_steps"} do
    local value = self[name] or 1
    if value > 1 and value % 1 ~= 0 then
      fail("TrainingArguments: %s: expected a whole number, or a part of all updates below 1, got %g", name, value)
    end
  end
  if self.max_steps == 0 or self.max_steps < -1 then
    fail("TrainingArguments: max_steps: expected at least 1, or -1 for num_train_epochs, got %d", self.max_steps)
  end
end

local function check_optimizer(self)
  for _, row in ipairs(optimizers.refused) do
    if self.optim:sub(1, #row[1]) == row[1] then
      fail("TrainingArguments: optim: '%s' is not supported: %s", self.optim, row[2])
    end
  end
  if not is_among(self.optim, optimizers.names) then
    fail("TrainingArguments: unknown optim '%s' (known: %s)%s", self.optim, table.concat(optimizers.names, ", "),
      arguments.did_you_mean(self.optim, optimizers.names))
  end
  optimizers.options(self)
end

local extras = {"inputs", "loss"}

local schedules = {
  "linear", "cosine", "cosine_with_restarts", "polynomial", "constant", "constant_with_warmup", "inverse_sqrt",
  "reduce_lr_on_plateau", "cosine_with_min_lr", "cosine_warmup_with_min_lr", "warmup_stable_decay", "greedy",
}

local function check_schedule(self)
  if is_among(self.lr_scheduler_type, schedules) then return end
  fail("TrainingArguments: unknown lr_scheduler_type '%s' (known: %s)%s", self.lr_scheduler_type,
    table.concat(schedules, ", "), arguments.did_you_mean(self.lr_scheduler_type, schedules))
end

local function check_extras(self)
  for _, name in ipairs(self.include_for_metrics) do
    if not is_among(name, extras) then
      fail("TrainingArguments: include_for_metrics: expected names among inputs, loss, got %s",
        arguments.describe(name))
    end
  end
end

-- Parse the options that a command line has as JSON.
local function read_json(self)
  local names = {
    "lr_scheduler_kwargs", "gradient_checkpointing_kwargs", "activation_checkpointing_kwargs", "fsdp_config",
  }
  for _, name in ipairs(names) do
    if type(self[name]) == "string" then
      local fine, value = pcall(C.json.decode, self[name])
      if not fine or type(value) ~= "table" then
        fail("TrainingArguments: %s: expected a JSON object such as {\"num_cycles\": 2}, got '%s'", name, self[name])
      end
      self[name] = value
    end
  end
end

-- The switches of accelhost.backends, unchanged unless the argument is given.
local function set_tf32(on)
  if on == nil then return end
  if on and (C.device.device_count "cuda" == 0 or C.device.properties("cuda", 0).major < 8) then
    fail "TrainingArguments: tf32: there is no CUDA device of compute capability 8.0 or later, which has it"
  end
  C.precision.allow("matmul", on)
  C.precision.allow("conv", on)
end

-- Compute the arguments that follow from others.
local function derive(self)
  read_json(self)
  self.gradient_checkpointing = self.gradient_checkpointing or self.activation_checkpointing
  self.gradient_checkpointing_kwargs = self.gradient_checkpointing_kwargs or self.activation_checkpointing_kwargs
  if self.resume_from_checkpoint == "true" then self.resume_from_checkpoint = true end
  if type(self.include_num_input_tokens_seen) == "boolean" then
    self.include_num_input_tokens_seen = self.include_num_input_tokens_seen and "all" or "no"
  end
  if self.eval_strategy == "steps" then self.eval_steps = self.eval_steps or self.logging_steps end
  if self.eval_strategy ~= "no" then self.do_eval = true end
  local needs_metric = self.load_best_model_at_end or self.save_strategy == "best" or self:follows_metric()
  if needs_metric and not self.metric_for_best_model then self.metric_for_best_model = "loss" end
  if self.metric_for_best_model and self.greater_is_better == nil then
    self.greater_is_better = not self.metric_for_best_model:find "loss$"
  end
  if self:follows_metric() and self.eval_strategy == "no" then
    fail("TrainingArguments: lr_scheduler_type = '%s' needs an eval_strategy, which it follows", self.lr_scheduler_type)
  end
  if self.bf16 and self.fp16 then fail "TrainingArguments: pass bf16 or fp16, not both" end
end

--- Arguments of a Trainer, in one table (or the output_dir first). Unknown names, values of a wrong kind and arguments
--- that contradict each other are errors; accelhost.TrainingArguments.help() lists them all with their defaults.
--
--   accelhost.TrainingArguments{num_train_epochs = 1, learning_rate = 1e-3}.per_device_train_batch_size  --> 8
function TrainingArguments:init(...)
  local count, given = select("#", ...), {...}
  local last = given[count]
  if arguments.is_options(last) then given[count] = take_foreign(last) end
  set(self, unpack(given, 1, count))
  derive(self)
  check_steps(self)
  check_best(self)
  check_optimizer(self)
  check_schedule(self)
  check_extras(self)
  set_tf32(self.tf32)
end

--- Does the schedule follow the evaluations rather than the updates?
--
--   accelhost.TrainingArguments{}:follows_metric()  --> false
function TrainingArguments:follows_metric()
  return self.lr_scheduler_type == "reduce_lr_on_plateau" or self.lr_scheduler_type == "greedy"
end

--- The arguments as plain values by name.
--
--   accelhost.TrainingArguments():to_dict().learning_rate  --> 5e-05
---@return table<string, any>
function TrainingArguments:to_dict()
  local values = {}
  for _, name in ipairs(known) do values[name] = self[name] end
  return values
end

-- The arguments that have another value than their default.
function TrainingArguments:__tostring()
  local parts = {}
  for _, row in ipairs(rows.taken) do
    local value, default = self[row[1]], row[3]
    if value ~= nil and json.encode(value) ~= json.encode(default == nil and json.null or default) then
      parts[#parts + 1] = ("%s=%s"):format(row[1], type(value) == "string" and value or json.encode(value))
    end
  end
  return ("TrainingArguments(%s)"):format(table.concat(parts, ", "))
end

--- Updates of a strategy's interval when there are `total` in all: a number below 1 is a part of them.
--
--   accelhost.TrainingArguments{logging_steps = 0.1}:interval("logging_steps", 50)  --> 5
---@param name string logging_steps, eval_steps, save_steps or warmup_steps
---@return integer
function TrainingArguments:interval(name, total)
  local value = self[name]
  return value < 1 and math.ceil(value * total) or value
end

-- Return the command-line option of a row.
local function option_of(row)
  local name, kind, default, help = unpack(row, 1, 4)
  local option = {name, default, help}
  local choices = {}
  for word in kind:gmatch "'([^']*)'" do choices[#choices + 1] = word end
  if #choices > 0 then
    option.type, option.choices = "string", choices
  elseif kind == "flag" then
    option.type, option.negatable = "boolean", true
  elseif kind:find "string" then
    option.type = "string"
  elseif kind == "list" then
    option.type = "list"
  else
    option.type = "number"
    if kind == "count" then option.integer, option.minimum = true, 1 end
    if kind == "size" then option.integer, option.minimum = true, 0 end
    if kind == "integer" then option.integer = true end
  end
  return option
end

local function options_of(spec)
  local all, own = {description = spec.description}, {}
  for _, row in ipairs(spec) do
    all[#all + 1] = row
    own[row[1]] = true
  end
  for _, row in ipairs(rows.taken) do
    if row[2] ~= "table" then
      local option = option_of(row)
      if spec.defaults and spec.defaults[row[1]] ~= nil then option[2] = spec.defaults[row[1]] end
      all[#all + 1] = option
    end
    if own[row[1]] then fail("TrainingArguments.parse_args: '%s' is an argument of the Trainer already", row[1]) end
  end
  return all, own
end

--- Read the command line: every argument of the Trainer is an option (--learning_rate 1e-4, --fp16, --no_fp16), in
--- addition to rows of the script's own, in the form of accelhost.parse_args. `defaults` holds other defaults. --help
--- lists all.
--
--   local spec = {{"data", "data", "folder"}, defaults = {num_train_epochs = 1}}
--   local args, own = accelhost.TrainingArguments.parse_args(spec, {"--learning_rate", "0.1"})
--   print(args.learning_rate, args.num_train_epochs, own.data)  --> 0.1  1  data
---@param spec? table rows of the script's own, `description`, `defaults`
---@param words? string[] default: the script's own arguments
---@return TrainingArguments, table # the arguments, and the script's own values
function TrainingArguments.parse_args(spec, words)
  local all, own = options_of(spec or {})
  local values = require("accelhost.util.options").parse(all, words)
  local given, mine = {}, {}
  for name, value in pairs(values) do (own[name] and mine or given)[name] = value end
  return TrainingArguments(given), mine
end

--- All arguments with their defaults, a line each.
--
--   accelhost.TrainingArguments.help():find "learning_rate" > 0  --> true
---@return string
function TrainingArguments.help()
  local lines = {}
  for _, row in ipairs(rows.taken) do
    local default = type(row[3]) == "table" and table.concat(row[3], ", ") or tostring(row[3])
    lines[#lines + 1] = ("%-30s %-12s %s"):format(row[1], default, row[4])
  end
  return table.concat(lines, "\n")
end

return TrainingArguments
