--- Jobs on CUDA devices: on the simulated GPU, with ACCELHOST_TEST_DEVICE=cuda on the cards present.
local C = require "accelhost._C"
local run = require "spec.support.run"
local sim = require "spec.support.sim"

local cards = {}

local asked = os.getenv "ACCELHOST_TEST_DEVICE" == "cuda"

--- Are the devices cards?
cards.real = asked and os.getenv "ACCELHOST_CUDA" ~= "sim"
--- The number of devices for a case.
cards.here = cards.real and C.device.device_count "cuda" or sim.there and 4 or 0
--- Is this a run for the sake of these devices, which may run for long?
cards.thorough = asked

--- The message of rank 0 where two ranks share a card.
cards.shared = "accelhost: collectives on this device go through the host's memory, not by nccl: ranks 0 and 1 share "
  .. "one card, and each rank needs its own card\n"

local function path_of(case) return case:find "/" and case or ("spec/distributed/cases/%s.lua"):format(case) end

local function environment_of(options)
  local env = {ACCELHOST_CUDA = not cards.real and "sim" or nil, ACCELHOST_SIM_DEVICES = options.ranks or 2,
    ACCELHOST_TEST_DEVICE = false, ACCELHOST_USE_CPU = false}
  for name, value in pairs(options.env or {}) do env[name] = value end
  return env
end

--- The output of a case of spec/distributed/cases, or of a path, in several ranks, as run.host returns it.
---@param case string
---@param words? any[]
---@param options? {ranks?: integer, env?: table<string, string|number|false>} default: 2 ranks
function cards.launch(case, words, options)
  options = options or {}
  local all = {"launch", "--num_processes", options.ranks or 2, path_of(case)}
  for _, word in ipairs(words or {}) do all[#all + 1] = word end
  return run.host(all, {env = environment_of(options), timeout = 100})
end

--- The output of two ranks of a case that have no launcher, which would end one that is slow to report.
---@param case string
---@param words string
---@return string stdout
function cards.by_themselves(case, words)
  local env = environment_of {env = {WORLD_SIZE = 2, ACCELHOST_JOB = false}}
  local each = ('for rank in 0 1; do MASTER_PORT=cards-$$ RANK=$rank "$0" %s %s & done; wait'):format(path_of(case),
    words)
  return run.program({"sh", "-c", each, run.path}, {env = env, timeout = 100}).stdout
end

--- A sentence that is pending where there are fewer cards.
---@param sentence string
---@param count integer
---@param fn fun()
function cards.case(sentence, count, fn)
  local environment = getfenv(2)
  environment.it(sentence, function()
    if cards.here == 0 then return environment.pending "needs the simulated GPU (make sim)" end
    if cards.here < count then return environment.pending(("needs %d cards"):format(count)) end
    fn()
  end)
end

return cards
