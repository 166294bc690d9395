--- accelhost estimate-memory: the memory that training a model needs, without allocating it.
local arguments = require "accelhost.util.arguments"
local source = require "accelhost.estimate.source"
local step = require "accelhost.estimate.step"
local units = require "accelhost.estimate.units"

local fail = arguments.raise

-- Bytes of an element; dtypes without an optimizer here are for weights only.
local dtypes = {float64 = 8, float32 = 4, bfloat16 = 2, float16 = 2, int8 = 1, int4 = 0.5, nf4 = 2}
local trains = {float64 = true, float32 = true, bfloat16 = true, float16 = true}

-- 1,199,882
local function grouped(number)
  local text = ("%d"):format(number)
  return (text:reverse():gsub("(%d%d%d)", "%1,"):reverse():gsub("^,", ""))
end

local function read_dtypes(text)
  local list = {}
  for word in (text .. ","):gmatch "([^,]*)," do
    if not dtypes[word] then
      fail("--dtypes: expected names among float64, float32, bfloat16, float16, int8, int4, nf4, got '%s'", word)
    end
    list[#list + 1] = word
  end
  return list
end

local function bytes_of(row, dtype)
  return row.numel * (row.float and dtypes[dtype] or row.size)
end

-- Return the layer with the most own weights.
local function largest(rows, dtype)
  local layers, best = {}, nil
  for _, row in ipairs(rows) do
    layers[row.layer] = (layers[row.layer] or 0) + bytes_of(row, dtype)
    if not best or layers[row.layer] > layers[best] then best = row.layer end
  end
  return best, layers[best]
end

-- The model of a folder with 4-bit codes in its linear maps; its other weights are counted in bfloat16.
local function with_codes(accelhost, what, options)
  if not what.checkpoint then fail "--dtypes: nf4 is for a checkpoint's folder, whose linear maps are quantised" end
  local config = accelhost.models.BitsAndBytesConfig {load_in_4bit = true, bnb_4bit_quant_type = "nf4"}
  local model = source.of_checkpoint(accelhost, what.checkpoint, options.model, config)
  return {rows = source.of_model(model), model = model}
end

local function column(accelhost, what, dtype)
  local weights, gradients, shapes = 0, 0, {}
  for _, row in ipairs(what.rows) do
    weights = weights + bytes_of(row, dtype)
    if row.trained then
      gradients = gradients + bytes_of(row, dtype)
      shapes[#shapes + 1] = row.shape
    end
  end
  local layer, layer_bytes = largest(what.rows, dtype)
  local result = {weights = weights, layer = layer, largest = layer_bytes}
  if not trains[dtype] then return result end
  result.gradients = gradients
  result.state, result.optimizer = step.optimizer_state(accelhost, what.optimizer, shapes, dtype)
  result.training = weights + gradients + result.state
  if what.inputs then
    local measured = step.measure(accelhost, what.model:to {dtype = dtype}, what.inputs, dtype)
    result.kept = measured.kept
    result.peak = weights + result.state + measured.peak
  end
  return result
end

local function print_table(columns, names, rows)
  local width = 34
  for _, row in ipairs(rows) do width = math.max(width, #row[2]) end
  local left = "%-" .. width + 2 .. "s"
  io.write(left:format "")
  for _, name in ipairs(names) do io.write(("%14s"):format(name)) end
  io.write "\n"
  for _, row in ipairs(rows) do
    io.write(left:format(row[2]))
    for _, one in ipairs(columns) do io.write(("%14s"):format(units.bytes(one[row[1]]))) end
    io.write "\n"
  end
end

local function print_head(what)
  local parameters, trained, buffers = 0, 0, 0
  for _, row in ipairs(what.rows) do
    if what.model and not row.parameter then buffers = buffers + row.numbers end
    if row.parameter or not what.model then parameters = parameters + row.numbers end
    trained = trained + (row.trained and row.numbers or 0)
  end
  if what.model then
    io.write(("%s: %s, %s parameters (%s trained), %s elements of buffers\n\n"):format(what.path, what.model._name,
      grouped(parameters), grouped(trained), grouped(buffers)))
  else
    io.write(("%s: %d tensors of %s elements\n\n"):format(what.path, #what.rows, grouped(parameters)))
  end
end

-- "fc: Linear", where the model is known.
local function layer_text(what, layer)
  local fine, module = pcall(function() return what.model:get_submodule(layer) end)
  return fine and ("%s: %s"):format(layer, module._name) or layer
end

local function report(what, names, columns)
  print_head(what)
  local optimizer = "AdamW"
  for _, one in ipairs(columns) do optimizer = one.optimizer or optimizer end
  local rows = {
    {"weights", "weights"}, {"largest", ("largest layer (%s)"):format(layer_text(what, columns[1].layer))},
    {"gradients", "gradients"},
    {"state", "state of " .. optimizer}, {"training", "training, without activations"},
  }
  if what.inputs then
    rows[#rows + 1] = {"kept", "kept for backward by a forward"}
    rows[#rows + 1] = {"peak", "peak of a training step"}
  end
  print_table(columns, names, rows)
  io.write(what.inputs and ("\nA forward and backward of %s, by their shapes. "):format(what.batch) or "\n",
    "Each rank holds all of it. Workspaces of kernels, Lua's garbage\nand the program itself (about ",
    "40 MiB) come on top.\n")
end

local function prepare(accelhost, path, options)
  local what = {path = path, optimizer = options.optimizer or "AdamW", batch = options.batch}
  local optim = accelhost.optim
  local name = what.optimizer:match "^%w+"
  local fine, message = pcall(function() return optim[name or ""] end)
  if not fine then
    fail("--optimizer: accelhost.optim has no '%s'%s", what.optimizer, message:match " %(did you mean .*$" or "")
  end
  local checkpoint = source.checkpoint_folder(path)
  if checkpoint or path:find "%.lua$" then
    what.checkpoint = checkpoint
    what.model = (checkpoint and source.of_checkpoint or source.model)(accelhost, checkpoint or path, options.model)
    what.rows = source.of_model(what.model)
    what.inputs = options.batch and step.inputs(options.batch)
  else
    if options.batch or options.model then
      fail("--%s is for a model (a script or a checkpoint's folder): a file of weights has no computation",
        options.batch and "batch" or "model")
    end
    what.rows = source.of_file(accelhost, path)
  end
  return what
end

--- Print the table for a file; raises a text for the user.
---@param options {batch?: string, dtypes?: string, optimizer?: string, model?: string}
return function(accelhost, path, options)
  local names = read_dtypes(options.dtypes or "float32,bfloat16,float16")
  local what = prepare(accelhost, path, options)
  local columns = {}
  for i, dtype in ipairs(names) do
    columns[i] = column(accelhost, dtype == "nf4" and with_codes(accelhost, what, options) or what, dtype)
  end
  report(what, names, columns)
end
