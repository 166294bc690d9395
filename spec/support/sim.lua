--- Programs on a GPU, each in a separate process, since a process opens its devices once: on the real card where
--- specs run on one (ACCELHOST_TEST_DEVICE=cuda without ACCELHOST_CUDA), else on the simulated GPU. Every spec of CUDA
--- devices starts its programs by this file or cards.lua, which decide between the two.
local run = require "spec.support.run"

local lfs = require "lfs"

local sim = {}

--- The simulator's absolute path.
sim.library = run.path:gsub("[^/]*$", "") .. "accelhost-cudasim.so"
if sim.library:sub(1, 1) ~= "/" then sim.library = lfs.currentdir() .. "/" .. sim.library end

--- Is it built (make sim)?
sim.there = lfs.attributes(sim.library, "mode") == "file"

--- Do programs run on a real card?
sim.on_card = os.getenv "ACCELHOST_TEST_DEVICE" == "cuda" and (os.getenv "ACCELHOST_CUDA" or "") == ""

-- The order of threads, which a card chooses for itself.
local of_order = {ACCELHOST_SIM_SEED = true, ACCELHOST_SIM_DELAY = true}

-- Does a program use a feature of the simulator alone: its library, failures, several devices, little memory?
local function needs_simulator(code, env)
  for name in pairs(env) do
    if name:find "^ACCELHOST_SIM_" and not of_order[name] then return true end
  end
  return env.ACCELHOST_CUDA == "sim" or code:find(sim.library, 1, true) ~= nil
end

-- The function calls(name) of a program: how often the driver or a library was called. A card does not count.
local COUNTS = [[local function calls(name)
  local text = require("ffi").string(require("ffi").load("%s").simulated_calls())
  return tonumber(text:match("%%f[%%S]" .. name .. " (%%d+)") or 0)
end
require("ffi").cdef "const char *simulated_calls(void);"]]
local NO_COUNTS = "local function calls() return 0 end"

local function pend(environment) return environment.pending "needs the simulated GPU (make sim)" end

--- The environment of a program on the GPU; the sentence is pending where it needs a simulator that is not built. A
--- variable of `env` that is false is not set.
---@param code string
---@param env? table<string, string|number|false>
function sim.environment(code, env)
  local simulated = not sim.on_card or needs_simulator(code, env or {})
  if simulated and not sim.there then pend(getfenv(3)) end
  local all = {
    ACCELHOST_CUDA = simulated and "sim", ACCELHOST_TEST_DEVICE = false, ACCELHOST_USE_CPU = false,
    ACCELHOST_CUDA_RANDOM = false,
  }
  for name, value in pairs(env or {}) do all[name] = value end
  return all
end

--- Run a program there: run.host's result. COUNTS in it is replaced by a function calls(name), which returns the number
--- of calls of a function of NVIDIA's; on a card always 0, so that a case which expects other numbers is to pass
--- ACCELHOST_CUDA = "sim".
---@param code string
---@param env? table<string, string|number|false>
function sim.host(code, env)
  local all = sim.environment(code, env)
  local counts = all.ACCELHOST_CUDA == "sim" and COUNTS:format(sim.library) or NO_COUNTS
  return run.host({"-e", (code:gsub("COUNTS", function() return counts end))}, {env = all, timeout = 120})
end

--- A sentence that is pending where there is neither a card nor the simulated GPU.
---@param sentence string
---@param fn fun()
function sim.case(sentence, fn)
  local environment = getfenv(2)
  environment.it(sentence, function()
    if not sim.on_card and not sim.there then return pend(environment) end
    fn()
  end)
end

--- A sentence about the simulated GPU, on a machine with a card too: pending where it is not built.
---@param sentence string
---@param fn fun()
function sim.simulated_case(sentence, fn)
  local environment = getfenv(2)
  environment.it(sentence, function()
    if not sim.there then return pend(environment) end
    fn()
  end)
end

return sim
