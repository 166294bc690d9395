--- Linear maps whose weight is quantised, in the formats of bitsandbytes: int8 numbers with a scale for each row, and
--- 4-bit codes with one for each block of the weight. The weight is a constant; gradients reach the input.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local Linear = require("accelhost.nn.linear").Linear
local new = require("accelhost.nn.parameter").new
local skip = require "accelhost.nn.skip"

local fail, describe, shape_text = arguments.fail, arguments.describe, arguments.shape_text
local quantized = {}

local NESTED_BLOCK, BLOCK = 256, 64

-- The numbers of 4-bit codes by their type.
local tables = {}

local numbers = {
  nf4 = {
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
  },
  fp4 = {0, 0.0625, 8, 12, 4, 6, 2, 3, 0, -0.0625, -8, -12, -4, -6, -2, -3},
}

local function table_of(quant_type)
  if not tables[quant_type] then
    local made = C.tensor(numbers[quant_type], {dtype = "float32"})
    tables[quant_type] = made / made:max()
  end
  return tables[quant_type]
end

-- count numbers from 0.1 to 1, with the bits of PyTorch's linspace in float32.
local function borders(count)
  local float = function(value) return C.tensor(value, {dtype = "float32"}):item() end
  local first, list = float(0.1), {}
  local step = float((1 - first) / (count - 1))
  for i = 0, count - 1 do
    list[i + 1] = i < math.floor(count / 2) and first + step * i or 1 - step * (count - 1 - i)
  end
  return C.tensor(list, {dtype = "float32"})
end

-- The 8-bit numbers of nested scales (arXiv 1511.04561): 7 powers of ten, each with twice as many steps as the one
-- before, and 0 and 1.
local function dynamic_table()
  if not tables.dynamic then
    local list = {0, 1}
    for power = 0, 6 do
      local count = 2 ^ power
      local ends = borders(count + 1)
      local means = (ends:narrow(0, 0, count) + ends:narrow(0, 1, count)) / 2
      for _, value in ipairs((means * 10 ^ (power - 6)):tolist()) do
        list[#list + 1], list[#list + 2] = value, -value
      end
    end
    table.sort(list)
    tables.dynamic = C.tensor(list, {dtype = "float32"})
  end
  return tables.dynamic
end

-- The base of both layers. A kind has the methods `_quantize(weight)`, `_operands()`, `_add_state(state, prefix)` and
-- `_read_state(state, prefix)`.
local Quantized = Linear:extend "QuantizedLinear"

local function no_grad(fn, ...) return C.autograd.no_grad(fn, ...) end

--- Quantise a floating weight [out_features, in_features] and make it the layer's.
---@param weight Tensor
function Quantized:set_weight(weight)
  no_grad(function() self.weight = new(self:_quantize(weight:detach():contiguous()), false) end)
end

-- The sizes, the bias, and a weight drawn as that of Linear unless it will be read from a file.
local function make(self, in_features, out_features, bias, device)
  self.in_features, self.out_features = in_features, out_features
  self.quant_state = {}
  if skip.is_on() then
    self.weight = new(self:_empty_codes(device), false)
    if self.weight.device == "meta" then self.quant_state = self:_empty_state() end
    if bias then self.bias = new(C.empty({out_features}, {device = device})) end
  else
    local drawn = Linear(in_features, out_features, {bias = bias, device = device})
    self:set_weight(drawn.weight)
    if bias then self.bias = drawn.bias end
  end
  self:register_state_dict_post_hook(self._add_state)
  self:register_load_state_dict_pre_hook(self._read_weight)
end

-- Raise unless the parts fit the layer: the checks of a product, of no rows.
local function check_parts(self, codes, state)
  local before = self.quant_state
  self.quant_state = state
  local fine, reason = pcall(no_grad, function()
    return C.quantized_matmul(C.empty {0, self.in_features}, codes, self:_operands())
  end)
  self.quant_state = before
  if not fine then error(reason, 0) end
end

-- Before a load: quantise a floating weight, rounded to the dtype `weight_dtype` if the layer has one, or read the
-- parts of a quantised one. The generic load then reads the codes.
function Quantized:_read_weight(state, prefix, _, _, _, errors)
  local name = prefix .. "weight"
  local given = state[name]
  if not C.is_tensor(given) then return end
  if given:is_floating_point() then
    if self.is_transposed and given:dim() == 2 then given = given:t() end
    if given:dim() ~= 2 or given:size(0) ~= self.out_features or given:size(1) ~= self.in_features then
      errors[#errors + 1] = ("size mismatch for %s: copying a param with shape %s from checkpoint, the shape in "
        .. "current model is (%d, %d)."):format(name, shape_text(given), self.out_features, self.in_features)
    else
      self:set_weight(self.weight_dtype and given:to(self.weight_dtype) or given)
    end
    state[name] = self.weight.data
    return
  end
  local fine, result = pcall(self._read_state, self, state, prefix)
  if fine then fine, result = pcall(function() check_parts(self, given, result) return result end) end
  if not fine then
    errors[#errors + 1] = ("%s: %s"):format(name, (tostring(result):gsub("^.-:%d+: ", "")))
    state[name] = self.weight.data
    return
  end
  self.quant_state = result
end

--- Return the tensors that no step changes: the codes and their scales.
---@return Tensor[]
function Quantized:_constants()
  local list, state = {self.weight}, self.quant_state
  for _, name in ipairs(arguments.sorted_keys(state)) do
    if C.is_tensor(state[name]) then list[#list + 1] = state[name] end
  end
  return list
end

--- Return the weight [out_features, in_features] in floating numbers.
---@return Tensor
function Quantized:dequantize()
  local absmax, code, nested_absmax, nested_code, _, _, block_size, offset = self:_operands()
  return no_grad(function()
    local made = C.dequantize(self.weight, absmax, code, nested_absmax, nested_code, self.out_features,
      self.in_features, block_size, offset)
    return self.quant_state.dtype and made:to(self.quant_state.dtype) or made
  end)
end

-- input times the weight's transpose, plus bias.
local function product(self, input)
  if self.weight.device ~= "cpu" and self.weight.device ~= "meta" then
    fail("%s: quantised weights are computed with on the CPU alone, this one is on %s: keep the model on \"cpu\", or "
      .. "load it without quantization_config", self._name, self.weight.device)
  end
  if input:dim() > 0 and input:size(-1) ~= self.in_features then
    fail("%s: input %s does not fit weight (%d, %d) (out_features, in_features)", self._name, shape_text(input),
      self.out_features, self.in_features)
  end
  local bias = self.bias
  if bias and bias.dtype ~= input.dtype then bias = bias:to(input.dtype) end
  return C.quantized_matmul(input, self.weight, self:_operands(bias))
end

--- A linear map whose weight is int8 numbers, 127 of them the largest absolute value of the row (LLM.int8, arXiv
--- 2208.07339). Inputs are not quantised, so that there are no outliers: `threshold` is accepted and changes nothing.
---
--- A floating weight is quantised when the layer is made and when it is loaded. State dicts have bitsandbytes' names:
--- weight, SCB (the largest absolute values), weight_format.
--
--   local layer = nn.Linear8bitLt(4, 2)
--   layer.weight.dtype                      --> int8
--   layer(x):size(1)                        --> 2
---@field weight Tensor int8 [out_features, in_features]
local Linear8bitLt = Quantized:extend "Linear8bitLt"
quantized.Linear8bitLt = Linear8bitLt

local read_8bit = arguments.signature("Linear8bitLt", {
  "input_features: size", "output_features: size", {"bias: flag", true}, {"has_fp16_weights: flag", false},
  {"threshold: number", 0}, {"device: device"},
})

function Linear8bitLt:init(...)
  local in_features, out_features, bias, has_fp16_weights, _, device = read_8bit(...)
  if has_fp16_weights then fail("Linear8bitLt: has_fp16_weights = true is not implemented; expected false") end
  make(self, in_features, out_features, bias, device)
end

function Linear8bitLt:_empty_codes(device)
  return C.empty({self.out_features, self.in_features}, {dtype = "int8", device = device})
end

-- The state of a weight without values.
function Linear8bitLt:_empty_state() return {SCB = C.empty({self.out_features}, {device = "meta"})} end

function Linear8bitLt:_quantize(weight)
  local codes, scales = C.quantize_int8(weight:to "float16") -- as bitsandbytes does
  self.quant_state = {SCB = scales}
  return codes
end

function Linear8bitLt:_operands(bias) return self.quant_state.SCB, nil, nil, nil, bias, self.out_features end

function Linear8bitLt:_add_state(state, prefix)
  if not self.quant_state.SCB then return end
  state[prefix .. "SCB"] = self.quant_state.SCB
  state[prefix .. "weight_format"] = C.tensor(0, {dtype = "uint8"})
end

-- Remove an entry of a state and return it.
local function removed(state, name)
  local value = state[name]
  state[name] = nil
  return value
end

function Linear8bitLt:_read_state(state, prefix)
  local format, scales = removed(state, prefix .. "weight_format"), removed(state, prefix .. "SCB")
  if not C.is_tensor(scales) then fail("expected its scales, %sSCB, got %s", prefix, describe(scales)) end
  if C.is_tensor(format) and (format:numel() ~= 1 or format:reshape(-1):int()[0]:item() ~= 0) then
    fail("weight_format: expected 0 (by rows), got %s", tostring(format))
  end
  return {SCB = scales}
end

---@param input Tensor [..., in_features]
---@return Tensor [..., out_features]
function Linear8bitLt:forward(input) return product(self, input) end

--- A linear map whose weight is 4-bit codes: NF4 (arXiv 2305.14314) or FP4, in blocks of 64 with a scale each; with
--- compress_statistics the scales are 8-bit codes too. A floating weight is quantised when the layer is made and when
--- it is loaded. State dicts have bitsandbytes' names: weight, weight.absmax, weight.quant_map,
--- weight.quant_state.bitsandbytes__nf4, ...
--
--   local layer = nn.Linear4bit(4, 2, {quant_type = "nf4", compute_dtype = "float32"})
--   layer.weight.dtype                      --> uint8
--   layer(x):size(1)                        --> 2
---@param compute_dtype? string the dtype of products; default that of the input
---@param quant_type? string "fp4" (default) or "nf4"
---@field weight Tensor uint8, two codes in a byte
local Linear4bit = Quantized:extend "Linear4bit"
quantized.Linear4bit = Linear4bit

local read_4bit = arguments.signature("Linear4bit", {
  "input_features: size", "output_features: size", {"bias: flag", true}, {"compute_dtype: dtype"},
  {"compress_statistics: flag", true}, {"quant_type: 'fp4'|'nf4'", "fp4"}, {"device: device"},
})

function Linear4bit:init(...)
  local in_features, out_features, bias, compute_dtype, nested, quant_type, device = read_4bit(...)
  self.compute_dtype, self.compress_statistics, self.quant_type = compute_dtype, nested, quant_type
  make(self, in_features, out_features, bias, device)
end

function Linear4bit:_empty_codes(device)
  local bytes = math.ceil(self.out_features * self.in_features / 2)
  return C.empty({bytes, 1}, {dtype = "uint8", device = device})
end

function Linear4bit:_empty_state()
  local function on_meta(count, dtype) return C.empty({count}, {dtype = dtype, device = "meta"}) end
  local nested, blocks = self.compress_statistics, math.ceil(self.out_features * self.in_features / BLOCK)
  return {
    absmax = on_meta(blocks, nested and "uint8" or "float32"), quant_map = on_meta(16, "float32"), block_size = BLOCK,
    nested_absmax = nested and on_meta(math.ceil(blocks / NESTED_BLOCK), "float32") or nil, offset = 0,
    nested_quant_map = nested and on_meta(256, "float32") or nil, quant_type = self.quant_type,
  }
end

function Linear4bit:_quantize(weight)
  local map = table_of(self.quant_type)
  local codes, absmax = C.quantize_4bit(weight, map, BLOCK)
  local state = {absmax = absmax, quant_map = map, block_size = BLOCK, offset = 0,
    quant_type = self.quant_type, dtype = weight.dtype}
  if self.compress_statistics then
    local mean = absmax:mean()
    state.offset, state.nested_quant_map = mean:item(), dynamic_table()
    state.absmax, state.nested_absmax = C.quantize_blockwise(absmax - mean, state.nested_quant_map, NESTED_BLOCK)
  end
  self.quant_state = state
  return codes
end

function Linear4bit:_operands(bias)
  local state = self.quant_state
  return state.absmax, state.quant_map, state.nested_absmax, state.nested_quant_map, bias, self.out_features,
    state.block_size, state.offset
end

-- The numbers of a state as a tensor of bytes, the text of a JSON object.
local function packed(self)
  local state = self.quant_state
  local fields = {quant_type = state.quant_type, blocksize = state.block_size, dtype = state.dtype,
    shape = {self.out_features, self.in_features}}
  if state.nested_absmax then
    fields.nested_blocksize, fields.nested_dtype, fields.nested_offset = NESTED_BLOCK, "float32", state.offset
  end
  return C.tensor({C.json.encode(fields):byte(1, -1)}, {dtype = "uint8"})
end

function Linear4bit:_add_state(state, prefix)
  local own = self.quant_state
  if not own.absmax then return end
  prefix = prefix .. "weight."
  state[prefix .. "absmax"], state[prefix .. "nested_absmax"] = own.absmax, own.nested_absmax
  for _, name in ipairs {"quant_map", "nested_quant_map"} do -- tables that layers share: files have one for each
    state[prefix .. name] = own[name] and own[name]:clone()
  end
  state[prefix .. "quant_state.bitsandbytes__" .. own.quant_type] = packed(self)
end

local MOST_TEXT = 4096 -- bytes; those that bitsandbytes writes have about 170

-- The JSON object of a quant_state entry.
local function unpacked(bytes)
  if not C.is_tensor(bytes) or bytes.dtype ~= "uint8" or bytes:numel() == 0 or bytes:numel() > MOST_TEXT then
    fail("quant_state: expected the bytes of a JSON object, got %s", describe(bytes))
  end
  local fine, fields = pcall(C.json.decode, string.char(unpack(bytes:reshape(-1):tolist())))
  if not fine or type(fields) ~= "table" then fail "quant_state: expected a JSON object" end
  return fields
end

local function expect(name, found, is_fine, expected)
  if not is_fine then fail("quant_state: %s: expected %s, got %s", name, expected, describe(found)) end
end

-- Check the numbers of a quant_state entry.
local function check_fields(self, fields, quant_type, nested)
  local shape = fields.shape
  expect("quant_type", fields.quant_type, fields.quant_type == quant_type, quant_type)
  expect("blocksize", fields.blocksize, type(fields.blocksize) == "number" and fields.blocksize % 1 == 0
    and fields.blocksize <= NESTED_BLOCK * 16, "a whole number")
  expect("dtype", fields.dtype, fields.dtype == "float32" or fields.dtype == "float16" or fields.dtype == "bfloat16",
    "float32, float16 or bfloat16")
  expect("shape", shape, type(shape) == "table" and #shape == 2 and shape[1] == self.out_features
    and shape[2] == self.in_features, ("[%d, %d]"):format(self.out_features, self.in_features))
  if not nested then return end
  expect("nested_blocksize", fields.nested_blocksize, fields.nested_blocksize == NESTED_BLOCK, NESTED_BLOCK)
  expect("nested_dtype", fields.nested_dtype, fields.nested_dtype == "float32", "float32")
  expect("nested_offset", fields.nested_offset, type(fields.nested_offset) == "number", "a number")
end

function Linear4bit:_read_state(state, prefix)
  prefix = prefix .. "weight."
  local found, made = nil, {offset = 0}
  for _, name in ipairs {"absmax", "quant_map", "nested_absmax", "nested_quant_map"} do
    made[name] = removed(state, prefix .. name)
  end
  for _, quant_type in ipairs {"nf4", "fp4"} do
    local bytes = removed(state, prefix .. "quant_state.bitsandbytes__" .. quant_type)
    if bytes ~= nil then found, made.quant_type = bytes, quant_type end
  end
  if not C.is_tensor(made.absmax) or not C.is_tensor(made.quant_map) or found == nil then
    fail("expected %sabsmax, quant_map and quant_state.bitsandbytes__nf4 (or fp4) of a quantised weight", prefix)
  end
  local fields = unpacked(found)
  check_fields(self, fields, made.quant_type, made.nested_absmax ~= nil)
  made.block_size, made.dtype, made.offset = fields.blocksize, fields.dtype, fields.nested_offset or 0
  self.quant_type, self.compress_statistics = made.quant_type, made.nested_absmax ~= nil
  return made
end

---@param input Tensor [..., in_features]
---@return Tensor [..., out_features]
function Linear4bit:forward(input)
  local dtype, compute = input.dtype, self.compute_dtype
  if not compute or compute == dtype then return product(self, input) end
  return product(self, input:to(compute)):to(dtype)
end

--- Is the module a linear map with a quantised weight?
function quantized.is_quantized(module)
  return type(module) == "table" and (module._name == "Linear4bit" or module._name == "Linear8bitLt")
end

return quantized
