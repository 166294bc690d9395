--- Accelerator{mixed_precision}: autocast in prepared models, scaled losses, steps that are left out.
local accelhost = require "accelhost"
local run = require "spec.support.run"

local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim
local INF = math.huge

-- Gradients of a sum times the default scale are beyond float16.
local function modest(options)
  options.kwargs_handlers = {accelhost.GradScalerKwargs {init_scale = 256}}
  return options
end

local function make(precision, more, seed)
  accelhost.manual_seed(seed or 0)
  local options = {mixed_precision = precision}
  for name, value in pairs(more or {}) do options[name] = value end
  local accelerator = accelhost.Accelerator(options)
  local model = nn.Linear(4, 2)
  local optimizer = optim.SGD(model:parameters(), {lr = 0.1})
  local scheduler = optim.lr_scheduler.StepLR(optimizer, {step_size = 1, gamma = 0.5})
  model, optimizer, scheduler = accelerator:prepare(model, optimizer, scheduler)
  return accelerator, model, optimizer, scheduler
end

local function input() return (accelhost.arange(12):to "float32" / 8):reshape(3, 4) end

describe("a model prepared in mixed precision", function()
  for precision, dtype in pairs {bf16 = "bfloat16", fp16 = "float16"} do
    it(("runs under autocast and returns float32 (%s)"):format(precision), function()
      local accelerator = accelhost.Accelerator {mixed_precision = precision}
      local Net, seen = nn.Module:extend "Net", nil
      function Net:init() self.fc = nn.Linear(4, 2) end
      function Net:forward(x)
        local y = self.fc(x)
        seen = y.dtype
        return y, {y, inner = {y}}, 7, nil
      end
      local net = accelerator:prepare(Net())
      local y, nested, number, none = net(input())
      assert.same({dtype, "float32", "float32", "float32", 7, "nil"},
        {seen, y.dtype, nested[1].dtype, nested.inner[1].dtype, number, type(none)})
      assert.equal(precision, accelerator.state.mixed_precision)
      assert.equal("float32", net.fc.weight.dtype)
      net:eval()
      net(input())
      assert.equal(dtype, seen)
      local function product() return accelhost.eye(2):mm(accelhost.eye(2)).dtype end
      assert.equal(dtype, accelerator:autocast(product))
      assert.equal("float32", accelerator:autocast({enabled = false}, product))
    end)
  end

  it("converts gradients of halves where it stores or adds them, to the same bits", function()
    local function gradients(prepared, twice, hooked)
      local accelerator, model = make "bf16"
      if not prepared then
        model = accelerator:unwrap_model(model)
        local plain = nn.Linear(4, 2)
        plain:load_state_dict(model:state_dict())
        model = plain
      end
      if hooked then model.weight:register_hook(function(grad) return grad * 2 end) end
      local function pass()
        local y = accelhost.autocast("cpu", {dtype = "bfloat16"}, function()
          local y = model(input()):float()
          return twice and y * model.weight:sum() or y
        end)
        local loss = y:sin():sum()
        local prof = accelhost.profiler.profile({}, function()
          if prepared then accelerator:backward(loss) else loss:backward() end
        end)
        local casts = 0
        for _, row in ipairs(prof:key_averages()) do casts = row.key == "to" and row.count or casts end
        return casts
      end
      pass()
      local casts = pass()
      return {model.weight.grad:tolist(), model.bias.grad:tolist()}, casts
    end
    for _, case in ipairs {{false, false}, {true, false}, {false, true}} do
      local wanted = gradients(false, unpack(case))
      local found, casts = gradients(true, unpack(case))
      if tostring(accelhost.get_default_device()):find "cuda" then
        -- A product stores the gradient of a weight in float32 there (device/cuda_weight_gradients_spec.lua).
        for i = 1, 2 do
          local off = accelhost.tensor(found[i]):sub(accelhost.tensor(wanted[i])):abs():max():item()
          assert.is_true(off <= 2 ^ -7 * accelhost.tensor(wanted[i]):abs():max():item(), off)
        end
      else
        assert.same(wanted, found)
        assert.equal((case[1] or case[2]) and 2 or 1, casts) -- of the result's, and where a hook or a sum sees it
      end
    end
  end)

  it("keeps its forward under autocast when unwrapped, unless configured otherwise", function()
    local accelerator, model = make "bf16"
    local exact = F.linear(input(), model.weight, model.bias)
    assert.equal(model, accelerator:unwrap_model(model))
    assert.is_false(accelhost.equal(exact, model(input())))
    assert.equal(model, accelerator:unwrap_model(model, {keep_fp32_wrapper = false}))
    assert.is_true(accelhost.equal(exact, model(input())))
    assert.equal(nn.Linear.forward, model.forward)
  end)

  it("is cast once however often it is prepared", function()
    local accelerator, model = make "bf16"
    local before = model.forward
    assert.equal(model, accelerator:prepare(model))
    assert.equal(before, model.forward)
  end)

  it("heeds AutocastKwargs", function()
    local _, model = make("bf16", {kwargs_handlers = {accelhost.AutocastKwargs {enabled = false}}})
    assert.is_true(accelhost.equal(F.linear(input(), model.weight, model.bias), model(input())))
  end)

  it("reaches the losses of full precision, within its rounding", function()
    local losses = {}
    for _, precision in ipairs {"no", "bf16", "fp16"} do
      local accelerator, model, optimizer = make(precision)
      local x, y = input(), accelhost.tensor({0, 1, 1}, {dtype = "int64"})
      for _ = 1, 20 do
        local loss = F.cross_entropy(model(x), y)
        accelerator:backward(loss)
        optimizer:step()
        optimizer:zero_grad()
        losses[precision] = loss:item()
        assert.is_false(accelerator.optimizer_step_was_skipped)
      end
    end
    assert.near(losses.no, losses.bf16, 0.01)
    assert.near(losses.no, losses.fp16, 0.002)
  end)
end)

describe("an optimizer in fp16", function()
  it("leaves out a step whose gradients are not finite, and its scheduler too; the next one is done", function()
    local accelerator, model, optimizer, scheduler = make "fp16"
    local before = model.weight:detach():clone()
    for _, bad in ipairs {INF, 0 / 0} do
      local scale = accelerator.scaler:get_scale()
      accelerator:backward((model(input()) * bad):sum())
      optimizer:step()
      scheduler:step()
      optimizer:zero_grad()
      assert.is_true(optimizer.step_was_skipped)
      assert.is_true(accelerator.optimizer_step_was_skipped)
      assert.equal(scale / 2, accelerator.scaler:get_scale())
      assert.equal(0.1, optimizer.param_groups[1].lr)
      assert.is_true(accelhost.equal(before, model.weight))
    end
    accelerator:backward(model(input()):sum())
    optimizer:step()
    scheduler:step()
    assert.is_false(optimizer.step_was_skipped)
    assert.is_false(accelerator.optimizer_step_was_skipped)
    assert.equal(0.05, optimizer.param_groups[1].lr)
    assert.is_false(accelhost.equal(before, model.weight))
  end)

  it("sees its gradients without the scale after clipping, and does not unscale them twice", function()
    local accelerator, model, optimizer = make("fp16", modest {})
    accelerator:backward(model(input()):sum())
    local plain = nn.Linear(4, 2)
    plain:load_state_dict(model:state_dict())
    plain(input()):sum():backward()
    accelerator:unscale_gradients(optimizer)
    accelerator:unscale_gradients()
    local norm = accelerator:clip_grad_norm_(model:parameters(), 1)
    local exact = nn.utils.clip_grad_norm_(plain:parameters(), 1)
    assert.near(exact:item(), norm:item(), 1e-2)
    assert.is_true(accelhost.allclose(model.weight.grad, plain.weight.grad, {rtol = 1e-2}))
    accelerator:clip_grad_value_(model:parameters(), 0.01)
    assert.near(0.01, model.weight.grad:abs():max():item(), 1e-7)
    optimizer:step()
    assert.equal(256, accelerator.scaler:get_scale())
  end)

  it("unscales only the optimizer whose parameters are clipped, and updates once for several", function()
    local accelerator = accelhost.Accelerator {
      mixed_precision = "fp16", kwargs_handlers = {accelhost.GradScalerKwargs {init_scale = 8, growth_interval = 1}},
    }
    local one, two = nn.Linear(4, 1), nn.Linear(4, 1)
    local first, second = optim.SGD(one:parameters(), {lr = 0}), optim.SGD(two:parameters(), {lr = 0})
    one, two, first, second = accelerator:prepare(one, two, first, second)
    for window = 1, 2 do
      local scale = 8 * 2 ^ (window - 1)
      assert.equal(scale, accelerator.scaler:get_scale())
      accelerator:backward(one(input()):sum() + two(input()):sum())
      accelerator:clip_grad_norm_(one:parameters(), 1e9)
      assert.same({3, 3 * scale}, {one.bias.grad:item(), two.bias.grad:item()})
      first:step()
      assert.equal(scale, accelerator.scaler:get_scale())
      second:step()
      assert.same({3, 3}, {one.bias.grad:item(), two.bias.grad:item()})
      first:zero_grad()
      second:zero_grad()
    end
    -- One after the other, as in a GAN: an update for each backward.
    for _, pair in ipairs {{one, first}, {two, second}} do
      accelerator:backward(pair[1](input()):sum())
      accelerator:unscale_gradients()
      pair[2]:step()
      pair[2]:zero_grad()
    end
    assert.equal(64, accelerator.scaler:get_scale())
  end)

  it("waits for the end of an accumulation window", function()
    local accelerator, model, optimizer = make("fp16", modest {gradient_accumulation_steps = 2})
    for step = 1, 4 do
      accelerator:accumulate(model, function()
        accelerator:backward(model(input()):sum())
        accelerator:unscale_gradients()
        accelerator:clip_grad_norm_(model:parameters(), 1e9)
        assert.equal(step % 2 == 0 and 3 or 3 * 256, model.bias.grad[0]:item())
        optimizer:step()
        optimizer:zero_grad()
      end)
    end
    assert.equal(2, accelerator.scaler:state_dict()._growth_tracker)
  end)

  it("heeds GradScalerKwargs, enabled = false too", function()
    local off = accelhost.GradScalerKwargs {enabled = false}
    local accelerator, model, optimizer = make("fp16", {kwargs_handlers = {off}})
    model(input()):sum():backward()
    assert.equal(3, model.bias.grad[0]:item())
    optimizer:step()
    assert.is_false(accelerator.optimizer_step_was_skipped)
    assert.is_false(accelerator.scaler:is_enabled())
  end)

  it("refuses gradients of a backward that did not scale", function()
    local _, model, optimizer = make "fp16"
    model(input()):sum():backward()
    assert.error_matches(function() optimizer:step() end, "SGD:step: the gradients are not of accelerator:backward")
  end)
end)

describe("mixed_precision", function()
  it("is refused where it makes no sense", function()
    local Accelerator = accelhost.Accelerator
    assert.error_matches(function() Accelerator {mixed_precision = "fp7"} end, "mixed_precision")
    assert.error_matches(function()
      Accelerator {mixed_precision = "bf16", kwargs_handlers = {accelhost.GradScalerKwargs()}}
    end, "only mixed_precision = 'fp16' scales losses")
    local accelerator = Accelerator {mixed_precision = "fp16"}
    assert.error_matches(function() accelerator:unscale_gradients(3) end, "unscale_gradients: expected an optimizer")
    assert.is_nil(Accelerator {mixed_precision = "bf16"}.scaler)
    assert.is_nil(Accelerator().scaler)
  end)

  it("is read from the launcher's setting", function()
    local code = "print(require 'accelhost'.Accelerator().mixed_precision)"
    local result = run.host({"-e", code}, {timeout = 20, env = {ACCELHOST_MIXED_PRECISION = "bf16"}})
    run.prints("bf16\n", result)
  end)
end)
