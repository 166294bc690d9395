--- accelhost.autograd.functional: Jacobians, Hessians and their products with vectors, of functions of tensors.
--
-- Where PyTorch has a tuple of tensors, `inputs` and `v` are lists of tensors and a function returns several results;
-- a result is a tensor where PyTorch's is one, and a list where it is a tuple. Results have no graph unless
-- create_graph is set. With strict, a result that does not depend on an input is an error, otherwise it is zeros.
---@param func fun(...: userdata): ... gets the inputs, returns one tensor or several
---@param inputs userdata|userdata[] a tensor, or a list with a tensor for each argument of func
---@param v? userdata|userdata[] the vector, of the same shapes
---@param create_graph? boolean record a graph, so that the results can be differentiated
---@param strict? boolean raise where a result does not depend on an input
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local pack = require "accelhost.util.pack"

local fail = arguments.fail
local M = {}

-- Return inputs as a list; whether they were one already.
local function list_of(what, inputs)
  if C.is_tensor(inputs) then return {inputs}, false end
  if #inputs == 0 then fail("%s: inputs: expected a tensor or a list of tensors, got an empty table", what) end
  return inputs, true
end

local function unlisted(list, is_list) return is_list and list or list[1] end

-- Leaves with the values of the inputs; views of those that require gradients where the graph continues to them.
local function leaves_of(inputs, create_graph)
  local list = {}
  for i, input in ipairs(inputs) do
    list[i] = create_graph and input.requires_grad and input:view(input:shape()) or input:detach():requires_grad_()
  end
  return list
end

-- Call func on the inputs; return its results as a list, and whether they are several.
local function outputs_of(what, func, inputs, strict)
  local results = pack(func(unpack(inputs)))
  if results.n == 1 and type(results[1]) == "table" then results = pack(unpack(results[1])) end
  if results.n == 0 then fail("%s: func: expected tensors as results, got none", what) end
  for i = 1, results.n do
    if not C.is_tensor(results[i]) then
      fail("%s: func: result %d: expected a tensor, got %s", what, i, arguments.describe(results[i]))
    end
    if strict and not results[i].requires_grad then
      fail("%s: result %d of func does not depend on the inputs (strict)", what, i)
    end
  end
  return results, results.n > 1
end

-- The gradients of weighted outputs; false for an input that none of them depends on.
local function gradients(outputs, inputs, weights, create_graph)
  local used, given = {}, {}
  for i, output in ipairs(outputs) do
    if output and output.requires_grad then used[#used + 1], given[#given + 1] = output, weights[i] end
  end
  if #used > 0 then
    return C.autograd.grad(used, inputs,
      {grad_outputs = given, create_graph = create_graph, retain_graph = true, allow_unused = true})
  end
  local none = {}
  for i = 1, #inputs do none[i] = false end
  return none
end

-- The gradients without graph unless create_graph is set; zeros shaped as `like` for those that are not there.
-- `of_what` names the tensors of `like` in messages.
local function filled(what, of_what, grads, like, create_graph, strict)
  local list = {}
  for i, tensor in ipairs(like) do
    local grad = grads[i]
    if strict and not grad then fail("%s: the product does not depend on %s %d (strict)", what, of_what, i) end
    if strict and create_graph and not grad.requires_grad then
      fail("%s: the product of %s %d has no graph, since it is constant (strict, create_graph)", what, of_what, i)
    end
    list[i] = not grad and C.zeros_like(tensor):detach() or create_graph and grad or grad:detach()
  end
  return list
end

local function detached(list, create_graph)
  if create_graph then return list end
  local result = {}
  for i, tensor in ipairs(list) do result[i] = tensor:detach() end
  return result
end

-- The vector as a list, checked against the tensors that it belongs to; ones where it is left out and `like` has one
-- element.
local function vector_of(what, v, like, of_what)
  if v == nil then
    if #like ~= 1 or like[1]:numel() ~= 1 then
      fail("%s: 'v' is missing: it can be left out only where %s is one tensor with one element", what, of_what)
    end
    return {C.ones_like(like[1])}
  end
  local list = C.is_tensor(v) and {v} or v
  if #list ~= #like then
    fail("%s: v: expected %d tensor%s, as %s has, got %d", what, #like, #like == 1 and "" or "s", of_what, #list)
  end
  for i, tensor in ipairs(list) do
    local wanted, got = arguments.shape_text(like[i]), arguments.shape_text(tensor)
    if wanted ~= got then fail("%s: v: expected shape %s for tensor %d, got %s", what, wanted, i, got) end
  end
  return list
end

local function zeros_with_graph(tensors)
  local list = {}
  for i, tensor in ipairs(tensors) do list[i] = tensor and C.zeros_like(tensor):requires_grad_() end
  return list
end

local function check_scalar(what, outputs)
  if #outputs ~= 1 or outputs[1]:numel() ~= 1 then
    fail("%s: func: expected one tensor with one element, got %s", what,
      #outputs == 1 and "shape " .. arguments.shape_text(outputs[1]) or #outputs .. " tensors")
  end
end

-- Make a function with PyTorch's arguments (func, inputs, v, create_graph, strict), which runs with gradients on.
local function product(what, body)
  return arguments.checked(what, {
    "func: callable", "inputs: tensors", {"v: tensors"}, {"create_graph: flag", false}, {"strict: flag", false},
  }, function(...) return C.autograd.enable_grad(body, ...) end)
end

--- The product of a vector and the Jacobian of func (reverse mode).
--
--     local functional = accelhost.autograd.functional
--     local x = accelhost.tensor {1, 2}
--     local y, product = functional.vjp(function(t) return t ^ 2 end, x, accelhost.tensor {1, 10})
--     y        --> tensor([1., 4.])
--     product  --> tensor([ 2., 40.])
---@param v? userdata|userdata[] shaped as the results of func; left out where it returns one element
---@return userdata|userdata[] # the results of func
---@return userdata|userdata[] # the products, shaped as the inputs
M.vjp = product("vjp", function(func, inputs, v, create_graph, strict)
  local list, is_list = list_of("vjp", inputs)
  local leaves = leaves_of(list, create_graph)
  local outputs, several = outputs_of("vjp", func, leaves, strict)
  v = vector_of("vjp", v, outputs, "the result of func")
  local grads = filled("vjp", "input", gradients(outputs, leaves, v, create_graph), leaves, create_graph, strict)
  return unlisted(detached(outputs, create_graph), several), unlisted(grads, is_list)
end)

--- The product of the Jacobian of func and a vector, as two backward passes.
--
--     local functional = accelhost.autograd.functional
--     local x = accelhost.tensor {1, 2}
--     local _, product = functional.jvp(function(t) return t:prod() end, x, accelhost.tensor {1, 10})
--     product  --> tensor(12.)
---@param v? userdata|userdata[] shaped as the inputs; left out where they are one element
---@return userdata|userdata[] # the results of func
---@return userdata|userdata[] # the products, shaped as the results
M.jvp = product("jvp", function(func, inputs, v, create_graph, strict)
  local list = list_of("jvp", inputs)
  local leaves = leaves_of(list, create_graph)
  v = vector_of("jvp", v, leaves, "inputs")
  local outputs, several = outputs_of("jvp", func, leaves, strict)
  local weights = zeros_with_graph(outputs)
  local grads = gradients(gradients(outputs, leaves, weights, true), weights, v, create_graph)
  grads = filled("jvp", "result", grads, outputs, create_graph, strict)
  return unlisted(detached(outputs, create_graph), several), unlisted(grads, several)
end)

-- Return func's value, and the product of its Hessian (symmetric) and the vector.
local function hessian_product(what, func, inputs, v, create_graph, strict)
  local list, is_list = list_of(what, inputs)
  local leaves = leaves_of(list, create_graph)
  v = vector_of(what, v, leaves, "inputs")
  local outputs = outputs_of(what, func, leaves, strict)
  check_scalar(what, outputs)
  local slopes = gradients(outputs, leaves, {C.ones_like(outputs[1])}, true)
  local grads = filled(what, "input", gradients(slopes, leaves, v, create_graph), leaves, create_graph, strict)
  return detached(outputs, create_graph)[1], unlisted(grads, is_list)
end

--- The product of a vector and the Hessian of a func that returns one element.
--
--     local functional = accelhost.autograd.functional
--     local x = accelhost.tensor {1, 2}
--     local _, product = functional.vhp(function(t) return (t ^ 3):sum() end, x, accelhost.ones(2))
--     product  --> tensor([ 6., 12.])
---@return userdata # the result of func
---@return userdata|userdata[] # the products, shaped as the inputs
M.vhp = product("vhp", function(...) return hessian_product("vhp", ...) end)

--- The product of the Hessian of a func that returns one element and a vector. The Hessian of a function with
--- continuous second derivatives is symmetric, so this is vhp, which costs less than PyTorch's third backward pass.
--
--     local functional = accelhost.autograd.functional
--     local x = accelhost.tensor {2, 3}
--     local _, product = functional.hvp(function(t) return t:prod() end, x, accelhost.ones(2))
--     product  --> tensor([1., 1.])
---@return userdata # the result of func
---@return userdata|userdata[] # the products, shaped as the inputs
M.hvp = product("hvp", function(...) return hessian_product("hvp", ...) end)

local function joined_shape(a, b)
  local shape = a:shape()
  for _, size in ipairs(b:shape()) do shape[#shape + 1] = size end
  return shape
end

-- The Jacobian of one result, a tensor for each input: a backward pass for each element of the result.
local function jacobian_rows(what, output, leaves, create_graph, strict)
  local rows = {}
  for i = 1, #leaves do rows[i] = {} end
  for k = 0, output:numel() - 1 do
    local weights = C.zeros_like(output)
    weights:view(-1)[k] = 1
    local grads = gradients({output}, leaves, {weights}, create_graph)
    local row = filled(what, "input", grads, leaves, create_graph, strict)
    for i, grad in ipairs(row) do rows[i][k + 1] = grad end
  end
  local result = {}
  for i, leaf in ipairs(leaves) do
    local shape = joined_shape(output, leaf)
    result[i] = #rows[i] > 0 and C.stack(rows[i], 0):view(shape) or leaf:detach():new_zeros(shape)
  end
  return result
end

local function jacobian(what, func, inputs, create_graph, strict)
  local list, is_list = list_of(what, inputs)
  local leaves = leaves_of(list, create_graph)
  local outputs, several = outputs_of(what, func, leaves, strict)
  local result = {}
  for i, output in ipairs(outputs) do
    result[i] = unlisted(jacobian_rows(what, output, leaves, create_graph, strict), is_list)
  end
  return unlisted(result, several)
end

-- PyTorch's vmap returns the numbers of the loop; its forward mode has no counterpart.
local function check_strategy(what, name, strategy)
  if strategy ~= "reverse-mode" then
    fail("%s: %s: expected 'reverse-mode', got '%s' (jvp computes one column of a Jacobian)", what, name, strategy)
  end
end

--- The Jacobian of func: of a result of shape (a, b) and an input of shape (c), a tensor of shape (a, b, c). With a
--- list of inputs a list; with several results a list of those.
--
--     local functional = accelhost.autograd.functional
--     functional.jacobian(function(t) return t ^ 2 end, accelhost.tensor {1, 2})  --> tensor([[2., 0.],
--                                                                                 -->         [0., 4.]])
---@param vectorize? boolean accepted; the result is the same
---@param strategy? string "reverse-mode"
---@return userdata|table
M.jacobian = arguments.checked("jacobian", {
  "func: callable", "inputs: tensors", {"create_graph: flag", false}, {"strict: flag", false},
  {"vectorize: flag", false}, {"strategy: string", "reverse-mode"},
}, function(func, inputs, create_graph, strict, _, strategy)
  check_strategy("jacobian", "strategy", strategy)
  return C.autograd.enable_grad(jacobian, "jacobian", func, inputs, create_graph, strict)
end)

--- The Hessian of a func that returns one element: of an input of shape (n), a tensor of shape (n, n); of a list of
--- inputs, a list of lists.
--
--     local functional = accelhost.autograd.functional
--     functional.hessian(function(t) return t:prod() end, accelhost.tensor {2, 3})  --> tensor([[0., 1.],
--                                                                                   -->         [1., 0.]])
---@param vectorize? boolean accepted; the result is the same
---@param outer_jacobian_strategy? string "reverse-mode"
---@return userdata|table
M.hessian = arguments.checked("hessian", {
  "func: callable", "inputs: tensors", {"create_graph: flag", false}, {"strict: flag", false},
  {"vectorize: flag", false}, {"outer_jacobian_strategy: string", "reverse-mode"},
}, function(func, inputs, create_graph, strict, _, strategy)
  check_strategy("hessian", "outer_jacobian_strategy", strategy)
  local list, is_list = list_of("hessian", inputs)
  local function slopes(...)
    local leaves = {...}
    local outputs = outputs_of("hessian", func, leaves, strict)
    check_scalar("hessian", outputs)
    local grads = gradients(outputs, leaves, {C.ones_like(outputs[1])}, true)
    return unpack(filled("hessian", "input", grads, leaves, true, strict))
  end
  local rows = C.autograd.enable_grad(jacobian, "hessian", slopes, list, create_graph, strict)
  if is_list then return #list == 1 and {rows} or rows end
  return rows[1]
end)

return M
