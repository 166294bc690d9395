--- Programs on the simulated GPU: each is one of its own, since a process opens its devices once.
local run = require "spec.support.run"

local lfs = require "lfs"

local sim = {}

--- Where it lies.
sim.library = run.path:gsub("[^/]*$", "") .. "accelhost-cudasim.so"

--- Is it built (make sim)?
sim.there = lfs.attributes(sim.library, "mode") == "file"

--- What a program does there, as run.host tells it; a variable of `env` that is false is not set.
---@param code string
---@param env? table<string, string|number|false>
function sim.host(code, env)
  local all = {ACCELHOST_CUDA = "sim", ACCELHOST_TEST_DEVICE = false}
  for name, value in pairs(env or {}) do all[name] = value end
  return run.host({"-e", code}, {env = all, timeout = 120})
end

--- A sentence that is pending where the simulated GPU is not built.
---@param sentence string
---@param fn fun()
function sim.case(sentence, fn)
  local environment = getfenv(2)
  environment.it(sentence, function()
    if not sim.there then return environment.pending "needs the simulated GPU (make sim)" end
    fn()
  end)
end

return sim
