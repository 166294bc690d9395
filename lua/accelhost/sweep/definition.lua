--- The definition of a sweep: read from a Lua file that returns a table or from YAML, checked before the first trial.
--
--   return {
--     script = "train.lua",                          -- or objective = function(trial) ... return loss end
--     space = {lr = accelhost.sweep.log_uniform(1e-4, 1e-1), optimizer = accelhost.sweep.choice{"adamw", "sgd"}},
--     metric = "loss", direction = "minimize",
--     sampler = "tpe", pruner = {"median", n_warmup_steps = 2}, trials = 40,
--   }
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local kinds = require "accelhost.util.kinds"
local json = require "accelhost.util.json"
local Space = require "accelhost.sweep.space"

local fail, describe = arguments.fail, arguments.describe

-- name -> its kind, and the default
local keys = {
  name = {"string"},                                     -- of the study
  objective = {"function"},                              -- called with a trial, in a separate process
  script = {"string"},                                   -- run for each trial, in separate processes
  arguments = {"list", {}},                              -- of the script, in addition to the parameters
  variables = {"table", {}},                             -- of the environment of trials
  space = {"table"},
  constraints = {"list", {}},                            -- expressions that parameters must satisfy: "a <= b"
  metric = {"string|table", "loss"},                     -- a name, or {name =, goal =, target =}
  direction = {"'minimize'|'maximize'"},
  metrics = {"list"},                                    -- several names, instead of metric
  directions = {"list"},                                 -- of metrics; default: minimize each
  sampler = {"any", "tpe"},
  pruner = {"any"},
  patience = {"count"},                                  -- reports without a better value that a trial may have
  threshold = {"table"},                                 -- {lower =, upper =}: a trial that leaves it is stopped
  trials = {"count"},
  parallel = {"count"},
  num_processes = {"count", 1},
  threads = {"count"},                                   -- of each process
  replicates = {"count", 1},                             -- runs of each configuration, with different seeds
  seed = {"size", 0},
  enqueue = {"list", {}},                                -- configurations to begin with
  timeout = {"positive"},                                -- seconds of a trial
  retries = {"size", 0},                                 -- of a trial that failed
  target = {"number"},                                   -- the sweep ends when a trial reaches it
  launcher = {"'local'|'slurm'", "local"},               -- the launcher of trials
  slurm = {"table", {}},                                 -- options of sbatch: {partition =, time =, mem =, ...}
  inline = {"flag", false},                              -- objective is called in the sweep's own process
  study = {"string"},                                    -- the folder
}

local also = {["repeat"] = "replicates", parameters = "space", num_trials = "trials", jobs = "parallel"}

local Definition = class.new "Definition"

local function known_names()
  local names = arguments.sorted_keys(keys)
  for _, name in ipairs(arguments.sorted_keys(also)) do names[#names + 1] = name end
  return names
end

local function read_keys(self, given)
  for _, name in ipairs(arguments.sorted_keys(given)) do
    local own = type(name) == "string" and also[name] or name
    local row = keys[own]
    if not row then
      fail("unknown key '%s'%s", tostring(name), arguments.did_you_mean(tostring(name), known_names()))
    end
    if self[own] ~= nil then fail("'%s' and '%s' are the same setting", own, name) end
    local kind = kinds.get(row[1])
    if not kind.test(given[name]) then
      fail("%s: expected %s, got %s", name, kind.text, describe(given[name]))
    end
    self[own] = given[name]
  end
end

local function read_metric(self)
  local metric = self.metric
  if type(metric) ~= "table" then return end
  arguments.check_names("metric", metric, {"name", "goal", "target"})
  self.metric = arguments.check("metric", "name", "string", metric.name)
  if metric.goal ~= nil then
    arguments.check("metric", "goal", "'minimize'|'maximize'", metric.goal)
    if self.direction and self.direction ~= metric.goal then
      fail("metric: goal is '%s', but direction '%s'", metric.goal, self.direction)
    end
    self.direction = metric.goal
  end
  if metric.target ~= nil then self.target = arguments.check("metric", "target", "number", metric.target) end
end

-- Settings of a single metric.
local single = {"metric", "direction", "target", "pruner", "patience", "threshold"}

-- Several metrics: the first one is the metric of parts that have one.
local function read_metrics(self, given)
  if not self.metrics then
    if self.directions then fail "directions: there are no 'metrics' (one metric has a 'direction')" end
    return
  end
  for _, name in ipairs(single) do
    if given[name] ~= nil then fail("%s: a study of several metrics has none", name) end
  end
  if self.replicates > 1 then fail "replicates: a study of several metrics has none" end
  if #self.metrics < 2 then fail("metrics: expected at least 2 names, got %d", #self.metrics) end
  local seen, directions = {}, self.directions or {}
  for i, name in ipairs(self.metrics) do
    if type(name) ~= "string" then fail("metrics: expected names, item %d is %s", i, describe(name)) end
    if seen[name] then fail("metrics: '%s' is there twice", name) end
    seen[name] = true
    directions[i] = directions[i] or not self.directions and "minimize"
    arguments.check("directions", ("item %d"):format(i), "'minimize'|'maximize'", directions[i] or nil)
  end
  if #directions ~= #self.metrics then
    fail("directions: expected %d, one for each of metrics, got %d", #self.metrics, #directions)
  end
  local name = type(self.sampler) == "table" and (self.sampler[1] or self.sampler._name) or self.sampler
  if name == "cmaes" or name == "CmaEsSampler" then
    fail "sampler: cmaes has one metric; tpe, nsga2 and random have several"
  end
  self.directions, self.metric, self.direction = directions, self.metrics[1], directions[1]
end

-- Names and values that batch scripts of Slurm contain.
local function check_batch_words(self)
  for name in pairs(self.variables) do
    if type(name) ~= "string" or not name:find "^[%a_][%w_]*$" then
      fail("variables: expected names of letters, digits and '_', got %s", describe(name))
    end
  end
  for name, value in pairs(self.slurm) do
    if type(name) ~= "string" or not name:find "^%a[%w_-]*$" then
      fail("slurm: expected names of sbatch's options, got %s", describe(name))
    end
    if value ~= true and type(value) ~= "number" and (type(value) ~= "string" or value:find "%c") then
      fail("slurm: %s: expected a number, true or a string without control characters, got %s", name, describe(value))
    end
  end
end

local function check_work(self)
  if (self.objective == nil) == (self.script == nil) then
    fail(self.script and "'objective' and 'script': one of them, not both"
      or "there is neither 'script' (a file that trains) nor 'objective' (a function)")
  end
  for i, word in ipairs(self.arguments) do
    if type(word) ~= "string" and type(word) ~= "number" then
      fail("arguments: expected texts and numbers, item %d is %s", i, describe(word))
    end
  end
  if self.inline and not self.objective then fail "inline: only an 'objective' can be called in the sweep's process" end
  if self.inline and self.num_processes > 1 then fail "inline: there is one process, not num_processes" end
  if not self.space then fail "there is no 'space'" end
  check_batch_words(self)
  if self.launcher == "slurm" and (self.inline or not self.parallel) then
    fail(self.inline and "inline: there are no processes for launcher = 'slurm'"
      or "launcher = 'slurm': the number of parallel trials is not set: pass -j N or set 'parallel' in the file")
  end
end

-- Files are named from the definition's folder, or from here.
local function find_script(self, folder)
  if not self.script then return end
  for _, path in ipairs {folder .. self.script, self.script} do
    local file = self.script:sub(1, 1) ~= "/" and io.open(path) or io.open(self.script)
    if file then
      file:close()
      self.script_path = self.script:sub(1, 1) == "/" and self.script or path
      return
    end
  end
  fail("script: there is no '%s'", folder .. self.script)
end

-- Patience and threshold go around the pruner.
local function read_pruner(self)
  local pruner = self.pruner
  if self.patience then pruner = {"patience", patience = self.patience, pruner = pruner} end
  if self.threshold then
    arguments.check_names("threshold", self.threshold, {"lower", "upper"})
    if pruner then fail "threshold: it cannot be combined with pruner or patience" end
    pruner = {"threshold", lower = self.threshold.lower, upper = self.threshold.upper}
  end
  self.pruner = pruner
end

local function read_queue(self)
  local queue = {}
  for i, values in ipairs(self.enqueue) do
    if type(values) ~= "table" then fail("enqueue: item %d: expected a table, got %s", i, describe(values)) end
    queue[i] = self.space:accept(("enqueue: item %d"):format(i), values)
  end
  self.enqueue = queue
end

--- Check a definition.
---@param folder? string folder of its file, with a slash at the end; default: the current folder
function Definition:init(given, folder)
  if type(given) ~= "table" or getmetatable(given) ~= nil then
    fail("expected a table {script =, space =, ...}, got %s", describe(given))
  end
  read_keys(self, given)
  for name, row in pairs(keys) do
    if self[name] == nil and row[2] ~= nil then self[name] = row[2] end
  end
  read_metric(self)
  read_metrics(self, given)
  self.direction = self.direction or "minimize"
  check_work(self)
  self.space = Space(self.space, self.constraints)
  find_script(self, folder or "")
  read_pruner(self)
  read_queue(self)
end

-- A pruner as a JSON value; one constructed by the script is identified by its class.
local function named(value)
  if type(value) ~= "table" then return value end
  if class.of(value) then return class.of(value)._name end
  local result = {}
  for key, item in pairs(value) do result[key == 1 and "name" or tostring(key)] = named(item) end
  return result
end

--- Return the settings that may not change when a study is resumed.
---@return table<string, any>
function Definition:facts()
  local space = {}
  for _, row in ipairs(self.space.parameters) do space[row.name] = row end
  return {
    metric = self.metric, direction = self.direction, replicates = self.replicates,
    pruner = self.pruner and named(self.pruner) or "none", work = self.script or "objective",
    metrics = self.metrics, directions = self.directions,
    constraints = self.constraints[1] and self.constraints or nil,
    space = next(space) and space or json.array {},
  }
end

local function range_text(row)
  if not row then return "not there" end
  if row.kind == "categorical" then return json.encode(row.choices) end
  return ("%s from %.12g to %.12g%s%s"):format(row.kind, row.low, row.high, row.log and ", logarithmic" or "",
    row.step and (", in steps of %.12g"):format(row.step) or "")
end

-- Is every value of one list in another?
local function holds_all(list, values)
  local known = {}
  for _, value in ipairs(list) do known[json.encode(value)] = true end
  for _, value in ipairs(values) do
    if not known[json.encode(value)] then return false end
  end
  return true
end

-- Is a parameter as it was but for more choices, or a wider range on the same steps? Earlier values stay valid then.
local function is_extended(was, is)
  if was.kind ~= is.kind or was.log ~= is.log or was.step ~= is.step
    or json.encode(was.when or {}) ~= json.encode(is.when or {}) then
    return false
  end
  if was.choices then return holds_all(is.choices, was.choices) end
  local steps = is.step and not is.log and (was.low - is.low) / is.step or 0
  return is.low <= was.low and is.high >= was.high and math.abs(steps - math.floor(steps + 0.5)) < 1e-6
end

--- Compare the facts of a study and a definition's.
---@param old table of facts
---@param new table
---@return string? difference the first one with which the study cannot continue; nil without one
---@return string[] extensions a line for each parameter that has more values now
function Definition.difference(old, new)
  for _, key in ipairs {"work", "metrics", "directions", "metric", "direction", "replicates", "pruner"} do
    local was, is = json.encode(old[key] or "none"), json.encode(new[key] or "none")
    if was ~= is then
      return ("%s is %s now, and was %s"):format(key == "work" and "the script" or key, is, was), {}
    end
  end
  local names, extensions = {}, {}
  local was_bound, is_bound = json.encode(old.constraints or "none"), json.encode(new.constraints or "none")
  if was_bound ~= is_bound then
    extensions[1] = ("constraints are %s now, and were %s; earlier trials stay"):format(is_bound, was_bound)
  end
  for _, space in ipairs {old.space, new.space} do
    for name in pairs(space) do names[name] = true end
  end
  for _, name in ipairs(arguments.sorted_keys(names)) do
    local was, is = old.space[name], new.space[name]
    if not was or not is or json.encode(was) ~= json.encode(is) then
      local was_text, is_text = range_text(was), range_text(is)
      if was_text == is_text then is_text = "there under another condition" end
      local text = ("parameter '%s' is %s now, and was %s"):format(name, is_text, was_text)
      if not was or not is or not is_extended(was, is) then return text, {} end
      extensions[#extensions + 1] = text .. "; earlier trials stay"
    end
  end
  return nil, extensions
end

return Definition
