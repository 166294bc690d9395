--- accelhost test: a self-test of this machine and this number of processes, run by every rank of a job.
local Page = require "accelhost.util.page"
local arguments = require "accelhost.util.arguments"
local checks = require "accelhost.test.checks"

local fail = arguments.raise

-- Return the tools of the checks: the job and ways to compare.
local function tools(accelhost, folder)
  local accelerator = accelhost.Accelerator {gradient_accumulation_steps = 1}
  local t = {
    accelhost = accelhost, accelerator = accelerator, new_accelerator = accelhost.Accelerator, folder = folder,
    rank = accelerator.process_index, size = accelerator.num_processes,
  }
  function t.check(holds, format, ...)
    if not holds then fail(format, ...) end
  end
  function t.same(what, expected, got)
    t.check(#expected == #got, "%s: expected %d items, got %d", what, #expected, #got)
    for i = 1, #expected do
      t.check(expected[i] == got[i], "%s: item %d: expected %s, got %s", what, i, tostring(expected[i]),
        tostring(got[i]))
    end
  end
  function t.near(what, expected, got, tolerance)
    local worst = (expected:detach():double() - got:detach():double()):abs():max():item()
    t.check(worst <= tolerance, "%s: expected a difference of at most %g, got %g", what, tolerance, worst)
  end
  -- The gradients of a model as one process has them, whatever else is prepared.
  function t.backward_alone(loss, model)
    local parameters = model:parameters()
    local gradients = accelhost.autograd.grad(loss, parameters)
    for i, parameter in ipairs(parameters) do parameter.grad = gradients[i] end
  end
  return t
end

local function run(check, t)
  local ok, message = xpcall(check.run, function(text) return tostring(text) end, t)
  if not ok then
    fail("accelhost test: %s: FAILED on rank %d\n  it should hold that %s\n  %s", check.name, t.rank, check.guarantee,
      message)
  end
end

--- Run the checks on every rank of this job; raises at the first that fails.
---@param folder string where files may be written
---@param clock fun(): number seconds
return function(accelhost, folder, clock)
  local t = tools(accelhost, folder)
  t.accelerator:print(("accelhost test: %d process%s of %d thread%s on %s"):format(t.size, t.size == 1 and "" or "es",
    accelhost.get_num_threads(), accelhost.get_num_threads() == 1 and "" or "s", t.accelerator.device))
  local first = clock()
  for _, check in ipairs(checks) do
    local start = clock()
    run(check, t)
    t.accelerator:free_memory() -- so that the next check does not compare with its objects
    t.accelerator:wait_for_everyone()
    local page = Page()
    page:wrap(check.guarantee, 34, ("  ok  %-18s%6.2f s  "):format(check.name, clock() - start))
    t.accelerator:print(table.concat(page.lines, "\n"))
  end
  t.accelerator:print(("accelhost test: %d checks passed in %.2f s"):format(#checks, clock() - first))
end
