--- Samplers compared: how far the best of a study's trials is from the best there is, the median over seeds.
--
-- usage: accelhost scripts/bench/sweep.lua [--seeds 20] [--rows PATTERN] [--no_peer] [--write FILE.md]
--
-- The functions are the usual ones of the literature; the classifier is a network that is really trained, on few
-- digits and for few steps, so that its loss is noisy. A number after @ is the number of trials at a time. The peer
-- columns are Optuna's TPE and the package cmaes, where `python3` has them (scripts/bench/peers/sweep.py).
local accelhost = require "accelhost"
local here = arg[0]:match("^(.*)/[^/]*$") or "."
package.path = here .. "/?.lua;" .. package.path
local classifier = require "classifier"
local samplers = require "accelhost.sweep.samplers"

local options = accelhost.parse_args {
  description = "Compares the samplers of sweeps with each other and with Optuna's.",
  {"seeds", 20, "studies of each kind", integer = true, minimum = 1},
  {"rows", "", "a Lua pattern: which rows"},
  {"no_peer", false, "our side only"},
  {"write", nil, "write the table to this file, under the heading 'Samplers compared'", type = "string"},
}

local function float(name, low, high, log) return {name = name, kind = "float", low = low, high = high, log = log} end

local function floats(count, low, high)
  local space = {}
  for i = 1, count do space[i] = float(("x%02d"):format(i), low, high, false) end
  return space
end

local function branin(params)
  local x, y = params.x, params.y
  local a = y - 5.1 / (4 * math.pi ^ 2) * x * x + 5 / math.pi * x - 6
  return a * a + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10 - 0.39788735772973816
end

local hartmann_a = {{10, 3, 17, 3.5, 1.7, 8}, {0.05, 10, 17, 0.1, 8, 14}, {3, 3.5, 1.7, 10, 17, 8},
  {17, 8, 0.05, 10, 0.1, 14}}
local hartmann_p = {{1312, 1696, 5569, 124, 8283, 5886}, {2329, 4135, 8307, 3736, 1004, 9991},
  {2348, 1451, 3522, 2883, 3047, 6650}, {4047, 8828, 8732, 5743, 1091, 381}}
local hartmann_c = {1, 1.2, 3, 3.2}

local function hartmann(params)
  local sum = 0
  for i = 1, 4 do
    local distance = 0
    for k = 1, 6 do
      distance = distance + hartmann_a[i][k] * (params[("x%02d"):format(k)] - 1e-4 * hartmann_p[i][k]) ^ 2
    end
    sum = sum + hartmann_c[i] * math.exp(-distance)
  end
  return 3.322368011391339 - sum
end

local function rosenbrock(params)
  local sum = 0
  for i = 1, 9 do
    local a, b = params[("x%02d"):format(i)], params[("x%02d"):format(i + 1)]
    sum = sum + 100 * (b - a * a) ^ 2 + (1 - a) ^ 2
  end
  return sum
end

-- The loss that a study sees, and the one that counts.
local function classify(params, number, seed)
  local train, test = classifier.begin(params, seed * 1000 + number)
  return train(40), test()
end

local all, no_cma = {"random", "sobol", "tpe", "cmaes"}, {"random", "sobol", "tpe"}
local plane = {float("x", -5, 10, false), float("y", 0, 15, false)}
local rows = {
  {"Branin", branin, plane, 50, all, peers = {"tpe", "cmaes"}},
  {"Branin @8", branin, plane, 50, all, parallel = 8},
  {"Branin", branin, plane, 200, all, peers = {"tpe", "cmaes"}},
  {"Hartmann-6", hartmann, floats(6, 0, 1), 100, all, peers = {"tpe", "cmaes"}},
  {"Hartmann-6 @8", hartmann, floats(6, 0, 1), 100, all, parallel = 8},
  {"Hartmann-6", hartmann, floats(6, 0, 1), 300, all, peers = {"tpe", "cmaes"}},
  {"classifier (loss)", classify, classifier.space, 60, no_cma, digits = 3},
  {"Rosenbrock-10", rosenbrock, floats(10, -5, 5), 1000, all, peers = {"cmaes"}, fewer = {tpe = 5}},
  {"Rosenbrock-10", rosenbrock, floats(10, -5, 5), 4000, {"random", "sobol", "cmaes"}, peers = {"cmaes"}},
}

-- Return the best result of a study.
local function study(row, name, seed)
  local objective, space, count, parallel = row[2], row[3], row[4], row.parallel or 1
  local sampler, running = samplers.new(name, seed):setup(space), {}
  local least, counts = math.huge, nil
  local function finish(trial)
    local loss, real = objective(trial.params, trial.number, seed)
    trial.state = "complete"
    sampler:observe(trial, loss)
    if not (loss >= least) then least, counts = loss, real or loss end
  end
  for number = 0, count - 1 do
    running[#running + 1] = {number = number, params = sampler:suggest(number, running), state = "running"}
    if #running == parallel then finish(table.remove(running, 1)) end
  end
  for _, trial in ipairs(running) do finish(trial) end
  return counts
end

local function median(values)
  table.sort(values)
  local half = math.floor(#values / 2)
  return #values % 2 == 1 and values[half + 1] or (values[half] + values[half + 1]) / 2
end

local function ours(row, name)
  local values = {}
  for seed = 1, math.min(options.seeds, row.fewer and row.fewer[name] or options.seeds) do
    values[seed] = study(row, name, seed)
  end
  return median(values)
end

local function peer(row, name)
  local pipe = io.popen(("python3 %s/peers/sweep.py %s %s %d %d 2>/dev/null"):format(here, row[1], name, row[4],
    options.seeds))
  local values = {}
  for line in pipe:lines() do values[#values + 1] = tonumber(line) end
  pipe:close()
  return #values > 0 and median(values) or nil
end

local columns = {"random", "sobol", "tpe", "cmaes"}
local head = {"", "trials", "random", "Sobol", "TPE", "CMA-ES", "Optuna's TPE", "cmaes"}

local function line_of(row)
  local cells = {row[1], tostring(row[4])}
  local function put(value) cells[#cells + 1] = value and ("%." .. (row.digits or 2) .. "g"):format(value) or "" end
  for _, name in ipairs(columns) do
    local used = false
    for _, given in ipairs(row[5]) do used = used or given == name end
    put(used and ours(row, name) or nil)
  end
  for _, name in ipairs {"tpe", "cmaes"} do
    local used = false
    for _, given in ipairs(row.peers or {}) do used = used or given == name end
    put(used and not options.no_peer and peer(row, name) or nil)
  end
  return "| " .. table.concat(cells, " | ") .. " |"
end

local function write(lines)
  local file = assert(io.open(options.write))
  local text = file:read "*a"
  file:close()
  local first, last = text:find("\n| | trials |[^\n]*\n|[^\n]*\n")
  assert(first, options.write .. " has no table that begins with '| | trials |'")
  while text:sub(last + 1, last + 1) == "|" do last = text:find("\n", last + 1, true) end
  file = assert(io.open(options.write, "w"))
  file:write(text:sub(1, first), table.concat(lines, "\n"), "\n", text:sub(last + 1))
  assert(file:close())
end

local lines = {"| " .. table.concat(head, " | ") .. " |", "|---|" .. ("--:|"):rep(#head - 1)}
lines[1] = lines[1]:gsub("^|  |", "| |")
print(table.concat(lines, "\n"))
for _, row in ipairs(rows) do
  if row[1]:find(options.rows) then
    lines[#lines + 1] = line_of(row)
    print(lines[#lines])
    io.stdout:flush()
  end
end
if options.write then write(lines) end
