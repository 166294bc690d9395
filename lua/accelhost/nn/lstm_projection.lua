--- One direction of an LSTM layer with projections, step by step: h' = W_hr (o tanh(c')).
--
-- The kernel of the other recurrent layers (host/cpu/linear/recurrent.c) has a hidden state as wide as the cell; this
-- file is made of ops that every device has.
local C = require "accelhost._C"
local autograd = require "accelhost.autograd"

-- Parts of a tensor along a dim. The gradient of each part alone would be a tensor of the whole size for each step.
local Split = autograd.Function:extend "lstm_split"

function Split.forward(ctx, input, sizes, dim)
  local parts, start = {}, 0
  for i, size in ipairs(sizes) do
    parts[i], start = input:narrow(dim, start, size), start + size
  end
  ctx.dim = dim
  return unpack(parts)
end

function Split.backward(ctx, ...)
  return C.cat({...}, ctx.dim)
end

-- The number of sequences of each step.
local function counts_of(gates, batch, batch_sizes)
  if batch_sizes then return batch_sizes:tolist() end
  local counts = {}
  for t = 1, batch > 0 and gates:size(0) / batch or 1 do counts[t] = batch end
  return counts
end

-- The states of the sequences that step t has: forward those that have ended leave, backward those that begin enter.
local function resize(state, count, first, ended)
  local running = state:size(0)
  if count < running then
    table.insert(ended, 1, state:narrow(0, count, running - count))
    return state:narrow(0, 0, count)
  elseif count > running then
    return C.cat({state, first:narrow(0, running, count - running):to(state.dtype)}, 0)
  end
  return state
end

local function join(state, ended)
  if #ended == 0 then return state end
  for i, part in ipairs(ended) do ended[i] = part:to(state.dtype) end
  return C.cat({state, unpack(ended)}, 0)
end

--- Run the steps. Rows are those of all steps, one step after the other.
---@param gates Tensor [rows, 4 * hidden_size] W_ih x + b_ih
---@param hidden Tensor [batch, proj_size] the first hidden state
---@param cell Tensor [batch, hidden_size]
---@param weight_hh Tensor [4 * hidden_size, proj_size]
---@param bias_hh? Tensor [4 * hidden_size]
---@param weight_hr Tensor [proj_size, hidden_size]
---@param batch_sizes? Tensor the number of sequences of each step, descending; without it all have `batch`
---@param reverse boolean from the last step to the first
---@return Tensor output [rows, proj_size]
---@return Tensor hidden the last one of each sequence
---@return Tensor cell
return function(gates, hidden, cell, weight_hh, bias_hh, weight_hr, batch_sizes, reverse)
  local counts, width = counts_of(gates, hidden:size(0), batch_sizes), cell:size(1)
  local parts, outputs, ended_h, ended_c = {Split.apply(gates, counts, 0)}, {}, {}, {}
  local first, last, by = 1, #counts, 1
  if reverse then first, last, by = last, first, -1 end
  local h, c = hidden:narrow(0, 0, counts[first]), cell:narrow(0, 0, counts[first])
  for t = first, last, by do
    h, c = resize(h, counts[t], hidden, ended_h), resize(c, counts[t], cell, ended_c)
    local i, f, g, o = Split.apply(parts[t] + C.linear(h, weight_hh, bias_hh), {width, width, width, width}, 1)
    c = f:sigmoid() * c + i:sigmoid() * g:tanh()
    h = C.linear(o:sigmoid() * c:tanh(), weight_hr)
    outputs[t] = h
  end
  return C.cat(outputs, 0), join(h, ended_h), join(c, ended_c)
end
