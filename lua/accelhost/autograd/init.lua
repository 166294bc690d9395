--- accelhost.autograd: gradients by hand: backward, grad, functions with their own rule.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local class = require "accelhost.util.class"
local namespace = require "accelhost.util.namespace"
local pack = require "accelhost.util.pack"
local protect = require "accelhost.util.protect"

local autograd = {
  backward = C.autograd.backward,
  no_grad = C.autograd.no_grad,
  enable_grad = C.autograd.enable_grad,
}

local signature = {
  "outputs", "inputs", {"grad_outputs"}, {"retain_graph: flag"}, {"create_graph: flag", false},
  {"only_inputs: flag", true}, {"allow_unused: flag"}, {"is_grads_batched: flag", false},
  {"materialize_grads: flag", false},
}
local read_grad = arguments.signature("grad", signature)

-- Replace the gradients of unused inputs by zeros.
local function materialize(grads, inputs)
  for i, grad in ipairs(grads) do
    grads[i] = grad or C.zeros_like(C.is_tensor(inputs) and inputs or inputs[i])
  end
  return grads
end

--- The gradients of `outputs` with respect to `inputs`, touching no `.grad`.
--
--   local grads = accelhost.autograd.grad(loss, {w})
--   grads[1]  --> tensor([2., 4., 6.])
---@param outputs userdata|userdata[]
---@param inputs userdata|userdata[]
---@param grad_outputs? userdata|userdata[] the gradients of the outputs; default: ones
---@param retain_graph? boolean default: create_graph
---@param create_graph? boolean record the backward, for second derivatives
---@param only_inputs? boolean has no effect, as in PyTorch
---@param allow_unused? boolean unused inputs are no error; default: materialize_grads
---@param is_grads_batched? boolean only false: there is no vmap
---@param materialize_grads? boolean zeros for unused inputs
---@return userdata[] # one per input, counted from 1; false where unused and allowed
function autograd.grad(...)
  local outputs, inputs, grad_outputs, retain_graph, create_graph, _, allow_unused, batched, zeros = read_grad(...)
  if batched then arguments.fail "grad: is_grads_batched: only false is possible, as there is no vmap: write a loop" end
  if zeros and allow_unused == false then
    arguments.fail "grad: allow_unused = false contradicts materialize_grads = true"
  end
  local grads = C.autograd.grad(outputs, inputs, {
    grad_outputs = grad_outputs, retain_graph = retain_graph, create_graph = create_graph,
    allow_unused = allow_unused or zeros,
  })
  return zeros and materialize(grads, inputs) or grads
end

--- A function with its own gradient rule.
---
---   local Square = accelhost.autograd.Function:extend "Square"
---   function Square.forward(ctx, x) ctx:save_for_backward(x); return x * x end
---   function Square.backward(ctx, grad) local x = ctx.saved_tensors[1]; return grad * x * 2 end
---   local y = Square.apply(x)
---
--- forward runs without recording; backward gets one gradient per result and returns one per argument (nil where
--- none is wanted).
local Function = class.new "Function"
autograd.Function = Function

local Context = class.new "Context"

--- Keep tensors for backward; they are checked against in-place changes.
---@param ... userdata
function Context:save_for_backward(...)
  self.saved_tensors = {...}
  self.versions = {}
  for i, tensor in ipairs(self.saved_tensors) do self.versions[i] = tensor._version end
end

local function check_versions(ctx, name)
  for i, tensor in ipairs(ctx.saved_tensors or {}) do
    if tensor._version ~= ctx.versions[i] then
      arguments.fail("backward of %s: saved tensor %d was changed in place after it was saved (version %d then, %d "
        .. "now)", name, i, ctx.versions[i], tensor._version)
    end
  end
end

-- As many gradients as arguments; those at the end may be left out where none is wanted.
local function check_gradients(ctx, name, grads, count)
  local wanted = 0
  for i = 1, count do
    if ctx.needs_input_grad[i] then wanted = i end
  end
  if grads.n < wanted or grads.n > count then
    arguments.fail("backward of %s: expected %d gradient%s, one for each argument (nil where none is wanted), got %d",
      name, count, count == 1 and "" or "s", grads.n)
  end
end

-- The tensors among `count` arguments, and their places.
local function tensors_of(values, count)
  local inputs, places = {}, {}
  for i = 1, count do
    if C.is_tensor(values[i]) then
      inputs[#inputs + 1] = values[i]
      places[#inputs] = i
    end
  end
  return inputs, places
end

-- The tensors among the results. A result that is an input would be its own history, so it is replaced by a copy.
local function outputs_of(results, inputs)
  local outputs = {}
  for i, result in ipairs(results) do
    if C.is_tensor(result) then
      for _, input in ipairs(inputs) do
        if result == input then
          result = C.autograd.no_grad(result.clone, result)
          results[i] = result
        end
      end
      outputs[#outputs + 1] = result
    end
  end
  return outputs
end

local extend = Function.extend

---@return table # a class with forward, backward and apply
function Function:extend(name)
  local made = extend(self, name)

  --- Run the function on arguments (tensors or anything else).
  function made.apply(...)
    local count = select("#", ...)
    local ctx = Context()
    local inputs, places = tensors_of({...}, count)
    ctx.needs_input_grad = {}
    for i = 1, count do ctx.needs_input_grad[i] = false end
    for k, place in ipairs(places) do ctx.needs_input_grad[place] = inputs[k].requires_grad end
    local results = {C.autograd.no_grad(made.forward, ctx, ...)}
    local wanted = false
    for _, input in ipairs(inputs) do wanted = wanted or input.requires_grad end
    if not (wanted and C.autograd.is_grad_enabled()) then return unpack(results) end
    local outputs = outputs_of(results, inputs)
    C.autograd.record(function(...)
      check_versions(ctx, name)
      local grads = pack(made.backward(ctx, ...))
      check_gradients(ctx, name, grads, count)
      local ordered = {}
      for k, place in ipairs(places) do ordered[k] = grads[place] end
      return unpack(ordered, 1, #places)
    end, inputs, outputs)
    return unpack(results)
  end

  return made
end

local read_anomaly = arguments.signature("set_detect_anomaly", {"mode: flag", {"check_nan: flag", true}})

--- Anomaly mode on or off: ops that run while it is on are remembered with their script line, and a backward stops at
--- the first gradient that is nan and names op and line. Slow; for debugging.
--
--     accelhost.autograd.set_detect_anomaly(true)
--     pcall(function() (w * 0):div(0):sum():backward() end)
--     accelhost.autograd.set_detect_anomaly(false)
function autograd.set_detect_anomaly(...)
  C.autograd.set_detect_anomaly(read_anomaly(...))
end

--- Run a function in anomaly mode.
--
--     accelhost.autograd.detect_anomaly(function() loss:backward() end)
---@param fn fun(...): ...
---@param ... any its arguments
---@return any # the results of fn
function autograd.detect_anomaly(fn, ...)
  arguments.check("detect_anomaly", "fn", "callable", fn)
  local on, check_nan = C.autograd.set_detect_anomaly(true, true)
  return protect(function() C.autograd.set_detect_anomaly(on, check_nan) end, fn, ...)
end

autograd.set_grad_enabled = C.autograd.set_grad_enabled

local lazy = {functional = {"accelhost.autograd.functional"}}
namespace.add(lazy, "accelhost.autograd.gradcheck", {"gradcheck", "gradgradcheck"})

return namespace.new("autograd", autograd, lazy, {refused = {checkpoint = "accelhost.utils.checkpoint.checkpoint"}})
