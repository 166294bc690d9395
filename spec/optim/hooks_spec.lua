-- Functions around step, state_dict and load_state_dict.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local optim = accelhost.optim

local function optimizer_of(name)
  local param = accelhost.nn.Parameter(accelhost.ones(1, 1))
  param.grad = accelhost.ones(1, 1)
  return optim[name]({param}, {lr = 0.5}), param
end

describe("A hook of an optimizer", function()
  for _, name in ipairs {"SGD", "Adafactor"} do
    it("runs before or after each step until it is removed: " .. name, function()
      local optimizer, param = optimizer_of(name)
      local seen = {}
      local before = optimizer:register_step_pre_hook(function(object, given)
        seen[#seen + 1] = {object == optimizer, #given, param:item()}
      end)
      optimizer:register_step_post_hook(function(object) seen[#seen + 1] = {object == optimizer, 0, param:item()} end)
      optimizer:step()
      local after = param:item()
      assert.same({{true, 0, 1}, {true, 0, after}}, seen)
      assert.is_not.equal(1, after)
      before.remove()
      optimizer:step()
      assert.equal(3, #seen)
    end)
  end

  it("runs around the step of an optimizer written in a script", function()
    local Still = optim.Optimizer:extend "Still"
    function Still:init(params) self:setup(params, {}) end
    function Still.step() return "stepped" end
    local optimizer, count = Still {accelhost.ones(1)}, 0
    optimizer:register_step_post_hook(function() count = count + 1 end)
    assert.equal("stepped", optimizer:step())
    assert.equal(1, count)
  end)

  it("may pass the step other arguments", function()
    local optimizer = optimizer_of "SGD"
    optimizer:register_step_pre_hook(function() return {function() return 7 end} end)
    assert.equal(7, optimizer:step())
  end)

  it("runs around saving and loading the state, and may replace it", function()
    local optimizer, seen = optimizer_of "SGD", {}
    optimizer:register_state_dict_pre_hook(function() seen[#seen + 1] = "before save" end)
    optimizer:register_state_dict_post_hook(function(_, state)
      state.more = 1
      seen[#seen + 1] = "second"
    end)
    optimizer:register_state_dict_post_hook(function() seen[#seen + 1] = "first" end, {prepend = true})
    optimizer:register_load_state_dict_pre_hook(function(_, state)
      return {state = state.state, param_groups = {{params = {0}, lr = 0.125}}}
    end)
    optimizer:register_load_state_dict_post_hook(function(object) seen[#seen + 1] = object.param_groups[1].lr end)
    local state = optimizer:state_dict()
    assert.equal(1, state.more)
    optimizer:load_state_dict(state)
    assert.same({"before save", "first", "second", 0.125}, seen)
  end)

  it("belongs to one optimizer", function()
    local one, two = optimizer_of "SGD", optimizer_of "SGD"
    local count = 0
    one:register_step_pre_hook(function() count = count + 1 end)
    two:step()
    assert.equal(0, count)
  end)

  it("has to be a function", function()
    local optimizer = optimizer_of "SGD"
    check.raises("register_step_pre_hook: hook: expected a function or something callable, got number 3", function()
      optimizer:register_step_pre_hook(3)
    end)
  end)
end)

describe("A hook of every optimizer", function()
  local handles = {}
  after_each(function()
    for _, handle in ipairs(handles) do handle:remove() end
  end)
  local function register(moment, hook)
    handles[#handles + 1] = optim["register_optimizer_step_" .. moment .. "_hook"](hook)
    return handles[#handles]
  end

  it("runs around the steps of all existing and later optimizers, outside of their hooks", function()
    local order, early = {}, optimizer_of "SGD"
    local function say(word) return function(object) order[#order + 1] = object._name .. " " .. word end end
    early:register_step_pre_hook(say "own before")
    early:register_step_post_hook(say "own after")
    register("pre", say "before")
    register("post", say "after")
    early:step()
    assert.same({"SGD before", "SGD own before", "SGD own after", "SGD after"}, order)
    order = {}
    optimizer_of("AdamW"):step()
    assert.same({"AdamW before", "AdamW after"}, order)
  end)

  it("may pass the step other arguments, and is not called after its removal", function()
    local optimizer = optimizer_of "SGD"
    local handle = register("pre", function(_, given)
      assert.same({}, given)
      return {function() return 7 end}
    end)
    assert.equal(7, optimizer:step())
    handle:remove()
    assert.is_nil(optimizer:step())
  end)

  it("is called once for a prepared optimizer's step", function()
    local count, accelerator = 0, accelhost.Accelerator()
    local model = accelhost.nn.Linear(2, 1)
    local optimizer = accelerator:prepare(optim.SGD(model:parameters(), {lr = 0.1}))
    register("post", function() count = count + 1 end)
    accelerator:backward(model(accelhost.ones(1, 2)):sum())
    optimizer:step()
    assert.equal(1, count)
  end)

  it("has to be a function", function()
    check.raises("register_optimizer_step_pre_hook: hook: expected a function or something callable, got", function()
      optim.register_optimizer_step_pre_hook(3)
    end)
  end)
end)

describe("An option of PyTorch's implementations", function()
  it("is accepted when the step stays the same", function()
    local param = accelhost.ones(1)
    local optimizer = optim.NAdam({param}, {foreach = true, fused = false, capturable = false, differentiable = false})
    assert.is_nil(optimizer.param_groups[1].foreach)
    optim.Adam {{params = {param}, foreach = true}}
  end)

  it("is refused with the reason when it asks for another step", function()
    check.raises("Adam: capturable: steps are not captured into graphs here; leave it out", function()
      optim.Adam({accelhost.ones(1)}, {capturable = true})
    end)
    check.raises("RAdam: differentiable: a step is not recorded here", function()
      optim.RAdam {{params = {accelhost.ones(1)}, differentiable = true}}
    end)
    check.raises("optim has no SparseAdam: gradients are dense here; Adam", function() return optim.SparseAdam end)
  end)

  it("has to be in range", function()
    local one = {accelhost.ones(1)}
    check.raises("Rprop: etaplus: expected a number above 1, got number 1", function()
      optim.Rprop(one, {etas = {0.5, 1}})
    end)
    check.raises("Rprop: step_sizes: expected {the smallest step, the largest step}, got number 1", function()
      optim.Rprop(one, {step_sizes = 1})
    end)
    check.raises("Adafactor: eps: expected {eps1, eps2}", function() optim.Adafactor(one, {eps = {1, -1}}) end)
    check.raises("Adafactor: beta2_decay: expected a number of at most 0", function()
      optim.Adafactor(one, {beta2_decay = 1})
    end)
    check.raises("Adafactor: d: expected a number of at least 1", function() optim.Adafactor(one, {d = 0.5}) end)
  end)
end)
