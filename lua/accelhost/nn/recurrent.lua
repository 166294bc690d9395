--- Recurrent layers: RNN, LSTM, GRU over sequences, and their cells for one step.
--
-- A direction of a layer is one product for the input's part of all steps, then one op for the recurrence, in C
-- (host/cpu/linear/recurrent.c). It has gradients, but no second derivatives.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"
local init = require "accelhost.nn.initializers"
local Module = require("accelhost.nn.module").Module
local new = require("accelhost.nn.parameter").new
local packed = require "accelhost.nn.utils.rnn"
local project = require "accelhost.nn.lstm_projection"
local repr = require "accelhost.nn.repr"
local warn = require "accelhost.util.warn"

local fail, describe, shape_text = arguments.fail, arguments.describe, arguments.shape_text

local recurrent = {}

local GATES = {LSTM = 4, GRU = 3, RNN_TANH = 1, RNN_RELU = 1}

-- U(-1/sqrt(hidden_size), 1/sqrt(hidden_size)) for every parameter, in the order in which they were made.
local function reset(self)
  local bound = self.hidden_size > 0 and 1 / math.sqrt(self.hidden_size) or 0
  for _, parameter in ipairs(self:parameters()) do init.uniform_(parameter, -bound, bound) end
end

local function suffix_of(layer, direction)
  return ("_l%d%s"):format(layer, direction == 2 and "_reverse" or "")
end

--- The base of RNN, LSTM and GRU.
--
--   nn.LSTM(10, 20, {num_layers = 2}).num_layers  --> 2
local RNNBase = Module:extend "RNNBase"
recurrent.RNNBase = RNNBase

function RNNBase:init(...) -- luacheck: no unused args
  fail("nn.RNNBase is the base; make nn.RNN, nn.LSTM or nn.GRU")
end

-- Store the constructor's arguments and create the parameters, layer by layer, direction by direction.
local function build(self, mode, given, options)
  self.mode = mode
  for name, value in pairs(given) do self[name] = value end
  if given.dropout > 0 and given.num_layers == 1 then
    warn(("%s: dropout = %g has no effect with one layer: it acts between layers"):format(self._name, given.dropout))
  end
  local directions = given.bidirectional and 2 or 1
  local wide = GATES[mode] * given.hidden_size
  local state_width = given.proj_size > 0 and given.proj_size or given.hidden_size
  for layer = 0, given.num_layers - 1 do
    local width = layer == 0 and given.input_size or state_width * directions
    for direction = 1, directions do
      local suffix = suffix_of(layer, direction)
      self["weight_ih" .. suffix] = new(C.empty({wide, width}, options))
      self["weight_hh" .. suffix] = new(C.empty({wide, state_width}, options))
      if given.bias then
        self["bias_ih" .. suffix] = new(C.empty({wide}, options))
        self["bias_hh" .. suffix] = new(C.empty({wide}, options))
      end
      if given.proj_size > 0 then
        self["weight_hr" .. suffix] = new(C.empty({given.proj_size, given.hidden_size}, options))
      end
    end
  end
  reset(self)
end

--- Draw all parameters from U(-1/sqrt(hidden_size), 1/sqrt(hidden_size)).
function RNNBase:reset_parameters()
  reset(self)
end

-- The caller's state, or zeros: [num_layers * directions, batch, hidden_size], or proj_size for the hidden state of an
-- LSTM with projections.
local function state_of(self, name, state, batch, like)
  local projected = name == "hidden" and self.proj_size > 0
  local sizes = {self.num_layers * (self.bidirectional and 2 or 1), batch,
    projected and self.proj_size or self.hidden_size}
  if state == nil then return C.zeros(sizes, {dtype = like.dtype, device = like.device}) end
  if not C.is_tensor(state) then fail("%s: %s: expected a tensor, got %s", self._name, name, describe(state)) end
  local shape = state:shape()
  if #shape ~= 3 or shape[1] ~= sizes[1] or shape[2] ~= sizes[2] or shape[3] ~= sizes[3] then
    fail("%s: %s: expected shape (%d, %d, %d) (layers * directions, batch, %s), got %s", self._name, name, sizes[1],
      sizes[2], sizes[3], projected and "proj_size" or "hidden_size", shape_text(state))
  end
  return state
end

-- Run one direction over all steps. A GRU and the cell of an LSTM mix their state into their result, so under autocast
-- the results have the state's dtype; all else is in the block's.
local function run_direction(keeps, hidden, gates, ...)
  local dtype = hidden.dtype
  local output, h, c = C.recurrent(gates, hidden, ...)
  if keeps and h.dtype ~= dtype and C.autocast.is_enabled() then
    output, h, c = output:to(dtype), h:to(dtype), c and c:to(dtype)
  end
  return output, h, c
end

-- All layers over rows [N, input_size] of the steps, one after the other; returns rows, last hidden, last cell.
local function run(self, rows, hidden, cell, batch_sizes)
  local directions = self.bidirectional and 2 or 1
  local last_hidden, last_cell = {}, {}
  for layer = 0, self.num_layers - 1 do
    local outputs = {}
    for direction = 1, directions do
      local suffix, at = suffix_of(layer, direction), layer * directions + direction - 1
      local gates = C.linear(rows, self["weight_ih" .. suffix], self["bias_ih" .. suffix])
      local first_hidden, first_cell = hidden:select(0, at), cell and cell:select(0, at) or nil
      local weight, bias, reverse = self["weight_hh" .. suffix], self["bias_hh" .. suffix], direction == 2
      local output, h, c
      if self.proj_size > 0 then
        output, h, c = project(gates, first_hidden, first_cell, weight, bias, self["weight_hr" .. suffix], batch_sizes,
          reverse)
      else
        output, h, c = run_direction(self.mode == "GRU", first_hidden, gates, first_cell, weight, bias, batch_sizes,
          self.mode, reverse)
      end
      outputs[direction], last_hidden[at + 1], last_cell[at + 1] = output, h, c
    end
    rows = directions == 2 and C.cat(outputs, 1) or outputs[1]
    if self.dropout > 0 and layer < self.num_layers - 1 then rows = C.dropout(rows, self.dropout, self.training) end
  end
  return rows, C.stack(last_hidden, 0), cell and C.stack(last_cell, 0)
end

local function check_width(self, input, width)
  if width ~= self.input_size then
    fail("%s: expected an input whose last size is input_size = %d, got %s", self._name, self.input_size,
      shape_text(input))
  end
end

-- Split a state. The states of an LSTM are passed and returned as {hidden, cell}, as PyTorch's tuple; the others' is
-- one tensor.
local function split_state(self, state, mode)
  if mode ~= "LSTM" or state == nil then return state, nil end
  if type(state) ~= "table" or not C.is_tensor(state[1]) or not C.is_tensor(state[2]) then
    fail("%s: expected a state {hidden, cell}, got %s", self._name, describe(state))
  end
  return state[1], state[2]
end

local function forward_packed(self, input, state)
  local hidden, cell = split_state(self, state, self.mode)
  check_width(self, input.data, input.data:size(-1))
  local batch = input.batch_sizes[0]:item()
  hidden = state_of(self, "hidden", hidden, batch, input.data)
  cell = self.mode == "LSTM" and state_of(self, "cell", cell, batch, input.data) or nil
  if state ~= nil and input.sorted_indices then
    hidden = hidden:index_select(1, input.sorted_indices)
    cell = cell and cell:index_select(1, input.sorted_indices)
  end
  local rows, h, c = run(self, input.data, hidden, cell, input.batch_sizes:to "cpu")
  if input.unsorted_indices then
    h = h:index_select(1, input.unsorted_indices)
    c = c and c:index_select(1, input.unsorted_indices)
  end
  local output = packed.PackedSequence(rows, input.batch_sizes, input.sorted_indices, input.unsorted_indices)
  return output, c and {h, c} or h
end

--- Run the layers over a batch of sequences.
--
-- input: [steps, batch, input_size], with batch_first [batch, steps, input_size], without a batch [steps, input_size],
-- or a PackedSequence. state: the hidden state to begin with, [num_layers * directions, batch, hidden_size] (zeros if
-- absent); of an LSTM {hidden, cell}, `hidden` proj_size wide with projections. Returns the last layer's output
-- of every step, in the form of the input, and the state after the last step, in the form of `state`.
---@param input Tensor|PackedSequence
---@param state? Tensor|Tensor[] of an LSTM {hidden, cell}
---@return Tensor|PackedSequence output
---@return Tensor|Tensor[] state
function RNNBase:forward(input, state)
  if packed.is_packed(input) then return forward_packed(self, input, state) end
  arguments.check(self._name, "input", "tensor", input)
  local dims = input:dim()
  if dims ~= 2 and dims ~= 3 then
    fail("%s: expected an input of 2 or 3 dims, got %s", self._name, shape_text(input))
  end
  check_width(self, input, input:size(-1))
  local hidden, cell = split_state(self, state, self.mode)
  if dims == 2 then
    input = input:unsqueeze(1)
    hidden, cell = hidden and hidden:unsqueeze(1), cell and cell:unsqueeze(1)
  elseif self.batch_first then
    input = input:transpose(0, 1)
  end
  local steps, batch = input:size(0), input:size(1)
  if steps == 0 then fail("%s: expected at least one step, got an empty sequence", self._name) end
  hidden = state_of(self, "hidden", hidden, batch, input)
  cell = self.mode == "LSTM" and state_of(self, "cell", cell, batch, input) or nil
  local rows, h, c = run(self, input:reshape(-1, self.input_size), hidden, cell)
  local output = rows:view(steps, batch, rows:size(1))
  if dims == 2 then
    output, h, c = output:squeeze(1), h:squeeze(1), c and c:squeeze(1)
  elseif self.batch_first then
    output = output:transpose(0, 1)
  end
  return output, c and {h, c} or h
end

function RNNBase:extra_repr()
  local parts = {repr.value(self.input_size), repr.value(self.hidden_size)}
  local function add(name, default)
    if self[name] ~= default then parts[#parts + 1] = name .. "=" .. repr.value(self[name]) end
  end
  add("proj_size", 0)
  add("num_layers", 1)
  add("bias", true)
  add("batch_first", false)
  if self.dropout ~= 0 then parts[#parts + 1] = "dropout=" .. repr.float(self.dropout) end
  add("bidirectional", false)
  return table.concat(parts, ", ")
end

local COMMON = {
  {"bias: flag", true}, {"batch_first: flag", false}, {"dropout: probability", 0}, {"bidirectional: flag", false},
}

-- `before` and `after` are the arguments before and after those of all layers.
local function signature(name, before, after)
  local parameters = {"input_size: count", "hidden_size: count", {"num_layers: count", 1}}
  parameters[#parameters + 1] = before
  for _, parameter in ipairs(COMMON) do parameters[#parameters + 1] = parameter end
  parameters[#parameters + 1] = after
  parameters[#parameters + 1] = {"device: device"}
  parameters[#parameters + 1] = {"dtype: dtype"}
  return arguments.signature(name, parameters)
end

local read_rnn = signature("RNN", {"nonlinearity: 'tanh'|'relu'", "tanh"})

--- Elman layers: h' = tanh(W_ih x + b_ih + W_hh h + b_hh), or relu.
--
--   local rnn = nn.RNN(10, 20, 2, {batch_first = true})
--   local output, hidden = rnn(accelhost.randn(5, 3, 10))
local RNN = RNNBase:extend "RNN"
recurrent.RNN = RNN

function RNN:init(...)
  local input, hidden, layers, nonlinearity, bias, batch_first, dropout, bidirectional, device, dtype = read_rnn(...)
  self.nonlinearity = nonlinearity
  build(self, nonlinearity == "relu" and "RNN_RELU" or "RNN_TANH", {
    input_size = input, hidden_size = hidden, num_layers = layers, bias = bias, batch_first = batch_first,
    dropout = dropout, bidirectional = bidirectional, proj_size = 0,
  }, {device = device, dtype = dtype})
end

local read_lstm = signature("LSTM", nil, {"proj_size: size", 0})

--- Long short-term memory: gates i, f, g, o; c' = f c + i g, h' = o tanh(c'). With proj_size above 0 (and below
--- hidden_size) h' = W_hr (o tanh(c')), so that the output and the hidden state are proj_size wide.
--
--   local lstm = nn.LSTM(10, 20)
--   local output, state = lstm(accelhost.randn(5, 3, 10))            -- state is {hidden, cell}
--   output, state = lstm(accelhost.randn(1, 3, 10), state)
--   print(output:size(2), #state)  --> 20  2
local LSTM = RNNBase:extend "LSTM"
recurrent.LSTM = LSTM

---@param proj_size integer? default 0: no projections
function LSTM:init(...)
  local input, hidden, layers, bias, batch_first, dropout, bidirectional, projected, device, dtype = read_lstm(...)
  if projected >= hidden then
    fail("LSTM: proj_size: expected a size below hidden_size = %d, or 0 for no projections, got %d", hidden, projected)
  end
  build(self, "LSTM", {
    input_size = input, hidden_size = hidden, num_layers = layers, bias = bias, batch_first = batch_first,
    dropout = dropout, bidirectional = bidirectional, proj_size = projected,
  }, {device = device, dtype = dtype})
end

local read_gru = signature "GRU"

--- Gated recurrent units: gates r, z, n; h' = (1 - z) n + z h.
--
--   local output, hidden = nn.GRU(10, 20)(accelhost.randn(5, 3, 10))
--   print(output:size(0), hidden:size(-1))  --> 5  20
local GRU = RNNBase:extend "GRU"
recurrent.GRU = GRU

function GRU:init(...)
  local input, hidden, layers, bias, batch_first, dropout, bidirectional, device, dtype = read_gru(...)
  build(self, "GRU", {
    input_size = input, hidden_size = hidden, num_layers = layers, bias = bias, batch_first = batch_first,
    dropout = dropout, bidirectional = bidirectional, proj_size = 0,
  }, {device = device, dtype = dtype})
end

-- One step of a cell, with a batch or without.
local function step(self, mode, input, state)
  local name = self._name
  arguments.check(name, "input", "tensor", input)
  local single = input:dim() == 1
  if single then input = input:unsqueeze(0) end
  if input:dim() ~= 2 then fail("%s: expected an input of 1 or 2 dims, got %s", name, shape_text(input)) end
  check_width(self, input, input:size(-1))
  local function given(part, what)
    if part == nil then
      return C.zeros({input:size(0), self.hidden_size}, {dtype = input.dtype, device = input.device})
    end
    arguments.check(name, what, "tensor", part)
    return single and part:unsqueeze(0) or part
  end
  local hidden, memory = split_state(self, state, mode)
  hidden, memory = given(hidden, "hidden"), mode == "LSTM" and given(memory, "cell") or nil
  local _, h, c = run_direction(mode == "GRU" or mode == "LSTM", hidden,
    C.linear(input, self.weight_ih, self.bias_ih), memory, self.weight_hh, self.bias_hh, nil, mode, false)
  if single then h, c = h:squeeze(0), c and c:squeeze(0) end
  if c then return h, c end
  return h
end

-- A cell of one step: name, mode, and whether it chooses its nonlinearity.
local function cell(name, mode)
  local Class = Module:extend(name)
  local parameters = {"input_size: size", "hidden_size: count", {"bias: flag", true}}
  if not mode then parameters[#parameters + 1] = {"nonlinearity: 'tanh'|'relu'", "tanh"} end
  parameters[#parameters + 1] = {"device: device"}
  parameters[#parameters + 1] = {"dtype: dtype"}
  local read = arguments.signature(name, parameters)

  function Class:init(...)
    local input, hidden, bias, nonlinearity, device, dtype = read(...)
    if mode then nonlinearity, device, dtype = nil, nonlinearity, device end
    local wide, options = GATES[mode or "RNN_TANH"] * hidden, {device = device, dtype = dtype}
    self.input_size, self.hidden_size, self.nonlinearity = input, hidden, nonlinearity
    self.weight_ih = new(C.empty({wide, input}, options))
    self.weight_hh = new(C.empty({wide, hidden}, options))
    if bias then
      self.bias_ih = new(C.empty({wide}, options))
      self.bias_hh = new(C.empty({wide}, options))
    end
    reset(self)
  end

  function Class:reset_parameters()
    reset(self)
  end

  function Class:forward(input, state)
    return step(self, mode or (self.nonlinearity == "relu" and "RNN_RELU" or "RNN_TANH"), input, state)
  end

  function Class:extra_repr()
    local parts = {repr.value(self.input_size), repr.value(self.hidden_size)}
    if not self.bias_ih then parts[#parts + 1] = "bias=" .. repr.value(false) end
    if self.nonlinearity == "relu" then parts[#parts + 1] = "nonlinearity=relu" end
    return table.concat(parts, ", ")
  end

  recurrent[name] = Class
end

--- One step of a plain recurrent layer: cell(input [N, input_size], hidden) returns the next hidden [N, hidden_size].
--- Without hidden it is zeros.
--
--   nn.RNNCell(4, 3)(x):shape()[2]  --> 3
cell "RNNCell"
--- One step of an LSTM: cell(input [N, input_size], {hidden, cell}) returns the next hidden and cell, [N, hidden_size]
--- each. Without a state both are zeros.
--
--   local hidden, memory = nn.LSTMCell(4, 3)(x)
--   print(hidden:size(1), memory:size(1))  --> 3  3
cell("LSTMCell", "LSTM") -- returns hidden, cell; accepts {hidden, cell}
--- One step of a GRU: cell(input [N, input_size], hidden) returns the next hidden [N, hidden_size]. Without hidden it
--- is zeros.
--
--   nn.GRUCell(4, 3)(x):shape()[2]  --> 3
cell("GRUCell", "GRU")

return recurrent
