--- Layers, losses and functions against PyTorch's numbers, whose cases scripts/fixtures/modules defines,
--- and their second derivatives against differences.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local fixture = require("spec.support.fixtures").read "modules"
local gradcheck = require "spec.support.gradcheck"

local nn, F = accelhost.nn, accelhost.nn.functional
local EXACT = 1e-11

local function weighed(tensor)
  local flat = tensor:reshape(-1):to "float64"
  return (flat * accelhost.arange(1, flat:numel() + 1, {dtype = "float64"}):sin()):sum()
end

local function draw(text)
  local kind, rest = text:match "^(.- ?)([%d,]*)$"
  local sizes = {}
  for size in rest:gmatch "%d+" do sizes[#sizes + 1] = tonumber(size) end
  if kind == "" then return accelhost.randn(sizes, {dtype = "float64", requires_grad = true}) end
  if kind == "rand " then return accelhost.rand(sizes, {dtype = "float64", requires_grad = true}) end
  if kind == "sign " then return accelhost.randn(sizes, {dtype = "float64"}):sign() end
  return accelhost.randint(tonumber(kind:match "%d+"), sizes)
end

local function make(case)
  local text = case.call:gsub("%)%.eval%(%)", "):eval()")
  local chunk = assert(loadstring("return " .. text))
  accelhost.manual_seed(3)
  local made = setfenv(chunk, {nn = nn, F = F, accelhost = accelhost, ipairs = ipairs, unpack = unpack})()
  return nn.is_module(made) and made:double() or made
end

local function inputs_of(case)
  accelhost.manual_seed(5)
  local inputs = {}
  for i, text in ipairs(case.inputs) do inputs[i] = draw(text) end
  return inputs
end

local function check_state(case, made)
  assert.equal(case.text, tostring(made))
  local keys = {}
  for key in require("accelhost.nn.module").state_pairs(made:state_dict()) do keys[#keys + 1] = key end
  assert.same(case.keys, keys)
end

local function check_gradients(case, made, inputs, results)
  local total = 0
  for _, result in ipairs(results) do
    if result.requires_grad then total = total + weighed(result) end
  end
  total:backward()
  for i, expected in ipairs(case.grads) do
    if expected then
      check.near(expected, weighed(inputs[i].grad), case.tolerance or EXACT, "gradient of input " .. i)
    else
      assert.is_nil(inputs[i].grad)
    end
  end
  for name, expected in pairs(case.parameters or {}) do
    check.near(expected, weighed(made:get_parameter(name).grad), EXACT, "gradient of " .. name)
  end
end

describe("PyTorch's numbers are computed by", function()
  for number, case in ipairs(fixture) do
    it(case.call .. " (" .. number .. ")", function()
      local made = make(case)
      if nn.is_module(made) then check_state(case, made) end
      local inputs = inputs_of(case)
      local results = {made(unpack(inputs))}
      assert.equal(#case.outputs, #results)
      for i, expected in ipairs(case.outputs) do
        assert.same(expected.sizes, results[i]:shape())
        check.near(expected.sum, weighed(results[i]), EXACT, "output " .. i)
      end
      if case.grads then check_gradients(case, made, inputs, results) end
    end)
  end
end)

-- Does a case draw random numbers? It would draw others for each difference.
local function is_random(case)
  return case.call:find "RReLU" or case.call:find "rrelu" or case.call:find "Dropout" or case.call:find "Fractional"
    or case.call:find "dtype ="
end

describe("Second derivatives are those of differences for", function()
  for number, case in ipairs(fixture) do
    local elements, differentiable = 0, false
    for _, input in ipairs(inputs_of(case)) do
      elements, differentiable = elements + input:numel(), differentiable or input.requires_grad
    end
    if case.grads and differentiable and elements <= 40 and not is_random(case) and not case.first_only then
      it(case.call .. " (" .. number .. ")", function()
        local made = make(case)
        local function call(...)
          return made(...)
        end
        gradcheck.gradgradcheck(call, inputs_of(case), {atol = 1e-4, rtol = 1e-3})
      end)
    end
  end
end)

describe("A function in place", function()
  it("is an op's, too, with the option", function()
    local x = accelhost.tensor {-1, 2}
    assert.are_not.equal(x, F.relu(x, false))
    assert.are_not.equal(x, F.relu(x, {inplace = false}))
    assert.same({-1, 2}, x:tolist())
    assert.equal(x, F.relu(x, {inplace = true}))
    assert.same({0, 2}, x:tolist())
    check.raises("relu: inplace: expected true or false, got number 1", function() F.relu(x, {inplace = 1}) end)
    check.raises("unknown option 'inplaec'", function() F.relu(x, {inplaec = true}) end)
  end)

  it("writes into its input and keeps the gradient", function()
    for _, name in ipairs {"celu", "selu", "mish", "relu6"} do
      local x = accelhost.randn({3, 4}, {dtype = "float64", requires_grad = true})
      local copy = x:clone()
      local y = F[name](copy, {inplace = true})
      assert.equal(copy, y)
      assert.is_true(y:allclose(F[name](x)))
      gradcheck.gradcheck(function(input) return F[name .. "_"](input:clone()) end, {x})
    end
  end)
end)

-- The same tensor in other memory: its last dim is not its fastest.
local function restrided(tensor)
  if tensor:dim() < 2 or tensor:numel() == 0 then return tensor end
  return tensor:detach():transpose(0, -1):contiguous():transpose(0, -1)
end

local function as_list(...) return {...} end

describe("The same numbers are computed from inputs in other memory, and nearly the same from float32, with", function()
  for number, case in ipairs(fixture) do
    local floats = false
    for _, input in ipairs(inputs_of(case)) do floats = floats or input:is_floating_point() end
    if floats and not is_random(case) and not case.call:find "float64" and not case.call:find ":double" then
      it(case.call .. " (" .. number .. ")", function()
        local inputs, moved, single = inputs_of(case), {}, {}
        for i, input in ipairs(inputs) do
          moved[i] = restrided(input)
          single[i] = input:is_floating_point() and input:detach():float() or input
        end
        accelhost.manual_seed(8)
        local wanted = as_list(make(case)(unpack(inputs)))
        accelhost.manual_seed(8)
        local made = make(case)
        local got = as_list(made(unpack(moved)))
        made = make(case)
        if nn.is_module(made) then made:float() end
        local rough = as_list(made(unpack(single)))
        for i, result in ipairs(wanted) do
          check.near(check.flat(result), got[i], 1e-12)
          if result:is_floating_point() then
            assert.equal("float32", rough[i].dtype)
            check.near(check.flat(result), rough[i], 2e-4)
          end
        end
      end)
    end
  end
end)

describe("A batch of nothing", function()
  it("passes layers of volumes", function()
    local x = accelhost.zeros({0, 2, 4, 4, 4}, {requires_grad = true})
    for _, layer in ipairs {
      nn.Conv3d(2, 3, 2), nn.ConvTranspose3d(2, 3, 2), nn.MaxPool3d(2, {return_indices = true}), nn.AvgPool3d(2),
      nn.AdaptiveMaxPool3d(2, {return_indices = true}), nn.AdaptiveAvgPool3d(2), nn.InstanceNorm3d(2),
      nn.FractionalMaxPool3d(2, {output_size = 2, return_indices = true}), nn.LPPool3d(2, 2), nn.CircularPad3d(1),
    } do
      local y = layer(x)
      assert.equal(0, y:size(0))
      y:sum():backward()
    end
  end)
end)

describe("Halves keep their dtype in", function()
  local labels = accelhost.tensor({0, 3}, {dtype = "int64"})
  for name, call in pairs {
    poisson_nll_loss = function(x) return F.poisson_nll_loss(x, labels:unsqueeze(1):tile(1, 4), {full = true}) end,
    gaussian_nll_loss = function(x) return F.gaussian_nll_loss(x, x * 0.5, 0.3) end,
    multi_margin_loss = function(x) return F.multi_margin_loss(x, labels) end,
    rms_norm = function(x) return F.rms_norm(x, 4) end,
    local_response_norm = function(x) return F.local_response_norm(x:unsqueeze(2), 2) end,
    rrelu = function(x) return F.rrelu(x, {training = true}) end,
    ctc_loss = function(x)
      return F.ctc_loss(x:unsqueeze(1):log_softmax(-1), labels:narrow(0, 1, 1):unsqueeze(0), {2}, {1})
    end,
  } do
    it(name, function()
      for _, dtype in ipairs {"bfloat16", "float16"} do
        local x = accelhost.randn(2, 4):to(dtype):requires_grad_()
        local y = call(x)
        assert.equal(dtype, y.dtype)
        y:sum():backward()
        assert.equal(dtype, x.grad.dtype)
      end
    end)
  end
end)
