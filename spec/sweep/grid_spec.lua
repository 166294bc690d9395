local samplers = require "accelhost.sweep.samplers"
local spaces = require "spec.support.spaces"

local space = {
  spaces.categorical("opt", {"sgd", "adam"}),
  spaces.float("opt.momentum", 0, 0.9, {step = 0.3, when = {name = "opt", values = {"sgd"}}}),
  spaces.int("width", 1, 3),
}

local function all(sampler)
  local list = {}
  local params = sampler:suggest(0, {})
  while params do
    list[#list + 1] = params
    sampler:observe({number = #list - 1, params = params, state = "complete"}, 1)
    params = sampler:suggest(#list, {})
  end
  return list
end

describe("the grid sampler", function()
  it("walks every combination once, conditions heeded, the last parameter fastest", function()
    local list, seen = all(samplers.new("grid"):setup(space)), {}
    assert.equal(4 * 3 + 3, #list)
    assert.same({opt = "sgd", ["opt.momentum"] = 0, width = 1}, list[1])
    assert.same({opt = "sgd", ["opt.momentum"] = 0, width = 2}, list[2])
    assert.same({opt = "sgd", ["opt.momentum"] = 0.3, width = 1}, list[4])
    assert.same({opt = "adam", width = 3}, list[15])
    for _, params in ipairs(list) do
      assert.is_nil(spaces.problem(space, params))
      local text = ("%s %s %s"):format(params.opt, tostring(params["opt.momentum"]), params.width)
      assert.is_nil(seen[text])
      seen[text] = true
    end
  end)

  it("leaves out running, failed and queued points, and includes those that no longer run", function()
    local sampler = samplers.new("grid"):setup(space)
    sampler:observe({number = 0, params = {opt = "sgd", ["opt.momentum"] = 0, width = 2}, state = "failed"}, nil)
    sampler:observe({number = 1, params = {opt = "lion", width = 2}, state = "complete"}, 1)
    local first = sampler:suggest(2, {})
    assert.equal(1, first.width)
    local second = sampler:suggest(3, {{number = 2, params = first}})
    assert.equal(3, second.width)
    assert.same(first, sampler:suggest(3, {}))
  end)

  it("counts combinations without making them", function()
    local large = {}
    for i = 1, 12 do large[i] = spaces.int("p" .. i, 1, 100) end
    local sampler = samplers.new("grid"):setup(large)
    assert.equal(100 ^ 12, sampler.combinations)
    assert.equal(1, sampler:suggest(0, {}).p1)
  end)

  it("refuses a continuous range", function()
    assert.error_matches(function() samplers.new("grid"):setup {spaces.float("lr", 1e-4, 1, {log = true})} end,
      "grid: 'lr' is continuous from 0.0001 to 1; set a step, or list the values")
  end)
end)
