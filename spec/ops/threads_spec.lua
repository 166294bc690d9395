-- The threads of OpenMP that libraries use are made once: a region within a region, even within one of a single thread,
-- would get new ones each time.
local run = require "spec.support.run"

-- Runs a call four times in a process of its own and prints the threads that there are before and after each. Tensors
-- are made on one thread, so that what is added is the call's.
local SCRIPT = [[
  local accelhost, lfs = require "accelhost", require "lfs"
  accelhost.set_num_threads(1)
  local a = accelhost.rand(%d, %d) + accelhost.eye(%d)
  local function threads()
    local ids = {}
    for id in lfs.dir "/proc/self/task" do ids[#ids + 1] = id:match "%%d+" end
    table.sort(ids)
    return table.concat(ids, " ")
  end
  accelhost.set_num_threads(2)
  print(threads())
  for _ = 1, 4 do
    local result = %s
    print(threads())
  end
]]

describe("the threads of", function()
  for name, case in pairs {
    ["a product"] = {600, "a:matmul(a)"},
    ["a product of float64"] = {300, [[a:to("float64"):matmul(a:to("float64"))]]},
    ["a layer"] = {600, "accelhost.nn.functional.linear(a, a)"},
    ["a decomposition"] = {400, "accelhost.linalg.qr(a)"},
    ["a solver"] = {600, "accelhost.linalg.solve(a, a)"},
  } do
    it(name .. " are kept from one call to the next", function()
      local script = SCRIPT:format(case[1], case[1], case[1], case[2])
      local result = run.host({"-e", script}, {env = {GOMP_SPINCOUNT = "1000"}})
      assert.same({0, ""}, {result.code, result.stderr})
      local before, first, others = result.stdout:match "^([^\n]*)\n([^\n]*\n)(.*)$"
      assert.equal(select(2, before:gsub("%d+", "")) + 1, select(2, first:gsub("%d+", "")))
      assert.equal(first:rep(3), others)
    end)
  end
end)
