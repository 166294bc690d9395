--- Hints for messages of the library that the text alone identifies: {pattern, hint, or function of the captures}.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local elsewhere = require "accelhost.util.hints.elsewhere"

-- The names of a function's arguments, when a signature has declared them and `name` is one.
local function names_of(what, name)
  local names, known = {}, false
  for i, row in ipairs(arguments.signatures[what] or {}) do
    names[i] = row.name
    known = known or row.name == name
  end
  return known and names or nil
end

local function arguments_of(what, name)
  local names = names_of(what, name)
  if not names or #names < 2 or #names > 10 then return nil end
  return ("its arguments are (%s)"):format(table.concat(names, ", "))
end

-- A class of accelhost.nn, where that is loaded?
local function is_module(name)
  local fine, value = pcall(function() return package.loaded["accelhost.nn"][name] end)
  return fine and type(value) == "table" and value._is_module == true
end

-- nn.ReLU(x) in place of nn.ReLU()(x).
local function made_by_input(name, argument)
  return is_module(name) and names_of(name, argument)
    and ("make the module first, and then call it: nn.%s()(x)"):format(name)
end

-- The divisors of n on both sides of k.
local function divisors(n, k)
  n, k = tonumber(n), tonumber(k)
  if n < 1 or n > 1e6 then return nil end
  local below, above
  for d = 1, n do
    if n % d == 0 then
      if d < k then below = d else above = above or d end
    end
  end
  local list = below and above and below .. " or " .. above or below or above
  return ("%s divides %d"):format(list, n):gsub("divides", below and above and "divide" or "divides")
end

local function numbers_of(text)
  local list = {}
  for number in text:gmatch "%d+" do list[#list + 1] = tonumber(number) end
  return list
end

-- An image whose channels are last, or other channels than the layer's.
local function channels(input, weight, transposed)
  local sizes, weights = numbers_of(input), numbers_of(weight)
  local spatial, wanted = #weights - 2, weights[transposed and 1 or 2]
  local layout = ({"(N, C, L)", "(N, C, H, W)", "(N, C, D, H, W)"})[spatial]
  if not layout then return nil end
  if #sizes >= spatial + 1 and sizes[#sizes] == wanted then
    local batched = #sizes == spatial + 2
    local order = batched and {"0"} or {}
    order[#order + 1] = tostring(#sizes - 1)
    for d = batched and 1 or 0, #sizes - 2 do order[#order + 1] = tostring(d) end
    return ("inputs are %s: x:permute(%s) moves the channels there"):format(layout, table.concat(order, ", "))
  end
  return ("inputs are %s, with the layer's %d channels"):format(layout, wanted)
end

local rows = {
  {"a floating target holds class probabilities", 'class numbers are integers: target:to "int64"'},
  {"target %-?%d+ at position %d+ is outside", "classes count from 0"},
  {"dtypes differ: (%w+) and (%w+)", function(first, second)
    local is_whole = first:find "int" or first == "bool"
    return ('convert them to one dtype, as by x:to "%s"'):format(is_whole and second or first)
  end},
  {"mnist: unknown option 'train'", "it returns both sets; data.MNIST{root = dir, train = true} is one"},
  {"slice: step must be at least 1, got %-1$", "x:flip(dim) has the reverse order"},
  {"inner sizes differ", "the last dim of the first meets the last but one of the second; b:t() swaps b's"},
  {"linear: input (%b()) does not fit weight %([%d, ]*%) %(out_features, in_features%)", function(input)
    return "the input's last dim has to be in_features"
      .. (#numbers_of(input) > 2 and "; x:flatten(1) makes a row of each image" or "")
  end},
  {"conv_transpose%dd: input (%b()) does not fit weight (%b())", function(input, weight)
    return channels(input, weight, true)
  end},
  {"conv%dd: input (%b()) does not fit weight (%b()) with groups = 1", channels},
  {"stack: tensor %d+ has shape", "samples of unequal shapes need a collate_fn of the DataLoader, as one that pads"},
  {"^[^\n]*%f[%w]dim %d+ is out of range", "dims count from 0, or from -1 backwards"},
  {"a gradient is needed for a tensor of shape", "loss:mean() and loss:sum() are scalars"},
  {"does not require grad and has no history",
    "it is from :detach(), from no_grad, or from tensors of which none requires grad"},
  {"was changed in place after it was saved",
    "make a new tensor, h = h * 2 in place of h:mul_(2); accelhost.autograd.detect_anomaly reports the op's line"},
  {"backward: loss: expected a tensor, got number", "a number has no history: pass the tensor, before its :item()"},
  -- Collectives.
  {"collective #%d+ differs: rank %d+ ([%w_]+) [%w_]+ %b()[ %l]* at [^;]*; rank %d+ ([%w_]+) [%w_]+ %b()",
    function(one, other)
      if one ~= other then return nil end
      return "tensors of one gather have one dtype and, except for the first dim, one shape"
    end},
  {"collective #%d+ differs: rank",
    "every process has to make the same calls in the same order, none inside `if accelerator.is_main_process`"},
  {"ended without it",
    "every process has to run the same number of steps; a prepared loader yields the same number of batches to each"},
  {"timed out after %d+ s", "that process is busy or stuck elsewhere; launch --timeout SECONDS waits longer"},
  {"number %d+ of the parameters is", "every process has to build the same model"},
  -- Values.
  {"expected a number[^\n]*, got '[%d%.e%-]+'", "a number is written without quotes"},
  {"expected a?n? ?integers?[^\n]*, got '[%d%.e%-]+'", "a number is written without quotes"},
  {"expected a?n? ?integers?[^\n]*, got number %-?%d+%.%d", "math.floor(x) makes one"},
  {"item: expected a tensor with one element", "x:mean() or x:sum() makes one of many, x[i]:item() reads one"},
  {"item %d+ of the table is nil", "a table of numbers or tensors has no holes: fill them, as by 0"},
  {"shapes do not broadcast", "sizes fit that are equal or 1, compared from the last dim on"},
  {"does not hold the %d+ elements", "one size may be -1, which is computed"},
  {"ind[ei][xc][e%s]?s?[^\n]*must be int64[^\n]* got", 'index:to "int64"'},
  {"expected an? integer ?%w* ?input, got", 'x:to "int64"'},
  {"expected integer indices as input, got", 'tokens are integers: x:to "int64"'},
  {"expected a floating input, got", 'x:to "float32"'},
  {"only floating tensors can require grad", '{dtype = "float32"} makes it one'},
  {"expected a bool %a+, got", "comparisons make one: x:gt(0)"},
  {"one_hot: class %d+ is outside", "num_classes has to be above the largest class; left out, it is found"},
  {"embedding: index %-?%d+ at position", "tokens count from 0, and num_embeddings has to be above the largest"},
  {"expected running_mean", "num_features has to be the size of the input's dim 1"},
  {"expected more than 1 value per channel", "a batch needs more samples; after model:eval() one is enough"},
  {"normalized_shape %b() is not how", "it has to be the sizes of the input's last dims"},
  {"target (%b()) does not fit input %b()", function(target)
    return target:find "^%(%d+, 1%)$" and "target:squeeze(1)" or "one target for each row of the input"
  end},
  {"binary_cross_entropy: input", "binary_cross_entropy_with_logits accepts the input of the sigmoid"},
  {"embed_dim (%d+) must be divisible by num_heads (%d+)", divisors},
  {"num_channels (%d+) must be divisible by num_groups (%d+)", divisors},
  {"einsum: operand %d+ %b(): '%a' has size", "a letter has one size in all operands"},
  {"matrix is singular", "linalg.pinv and linalg.lstsq accept such a matrix"},
  {"matrix is not positive%-definite", "adding a small multiple of accelhost.eye(n) makes it so if it nearly is"},
  {"is larger than the [%a ]*image", "padding = n or pad_if_needed = true makes the image larger"},
  -- Files.
  {"load_state_dict: state_dict: expected a table, got '([^']+)'", function(path)
    return ('accelhost.load "%s" reads one'):format(path)
  end},
  {'Unexpected key%(s%) in state_dict:[^\n]*"param_groups"', "this is an optimizer's: optimizer:load_state_dict"},
  {"size mismatch for", "build the model with the sizes that were saved, or remove those keys and pass "
    .. "{strict = false}"},
  {"key%(s%) in state_dict", "{strict = false} passes over keys that only one side has"},
  {"there is no such file", "paths count from the folder where the program was started"},
  {"%.[ct]sv' is in no format", 'data.load_dataset("csv", ...) reads rows of text'},
  {"device \"[%w_]+\": [^\n]* is not here", '"cpu" is always there; other devices are plugins, next to the program'},
  {"device \"[%w_]+:%d+\": there is %d+ of this kind", "they count from 0, and accelerator.device is this process's"},
  -- Arguments.
  {"unknown option '([%w_]+)'", function(name) return elsewhere.options[name] end},
  {"unknown dtype '([%w_]+)' %(known: ([%w ]+)%)", function(name, known)
    local names = {}
    for word in known:gmatch "%w+" do names[#names + 1] = word end
    local near = C.system.nearest(name, names)
    return near and ("did you mean '%s'?"):format(near)
  end},
  {"parameters: expected [^\n]*, got a", "model:parameters() returns them"},
  {"is a parameter: expected an nn.Parameter", "accelhost.no_grad(function() weight:fill_(3) end) changes its values"},
  {"expected at most 1 argument %(transforms%), got", "pass them in one table: Compose{a, b}"},
  {"expected at most 1 argument %(modules%), got", "pass them in one table: ModuleList{a, b}"},
  {"expected a table of tensors, got a tensor", "write them in braces: {a, b}"},
  {"expected a tensor, got a table", "accelhost.stack(list) makes one of tensors, accelhost.tensor(list) of numbers"},
  {"expected a module, got the class ([%w_]+)", function(name) return ("make one: nn.%s()"):format(name) end},
  {"%f[%w_]([%w_%.]+): ([%w_]+): expected [^\n]*, got a tensor of shape", made_by_input},
  {"%f[%w_]([%w_%.]+): '([%w_]+)' is missing", arguments_of},
  {"%f[%w_]([%w_%.]+): ([%w_]+): expected", arguments_of},
}

local advice = {}

--- The hint for a message, nil when none is known.
---@return string?
function advice.explain(message)
  for _, row in ipairs(rows) do
    local from, _, first, second = message:find(row[1])
    local hint = from and row[2]
    if type(hint) == "function" then hint = hint(first, second) end
    if hint then return hint end
  end
end

return advice
