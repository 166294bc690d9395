--- Attention over sequences of unequal lengths, concatenated without padding.
local C = require "accelhost._C"
local arguments = require "accelhost.util.arguments"

local fail, shape_text = arguments.fail, arguments.shape_text
local F = {}

local read = arguments.signature("varlen_attn", {
  "query: tensor", "key: tensor", "value: tensor", "cu_seq_q: tensor", "cu_seq_k: tensor", "max_q: size", "max_k: size",
  {"scale: positive"}, {"enable_gqa: flag", false}, {"is_causal: flag", false}, {"dropout_p: probability", 0},
  {"window_size: list"}, {"return_aux: table"}, {"seqused_k: tensor"}, {"block_table: tensor"}, {"num_splits: count"},
  {"generator: generator"},
})

-- Return the numbers of keys before and after its own position that a query sees; -1: all.
local function window_of(window, is_causal)
  local left, right = unpack(window or {-1, -1})
  local fine = (window == nil or #window == 2) and type(left) == "number" and type(right) == "number"
  if not fine or left < -1 or right < -1 or left % 1 ~= 0 or right % 1 ~= 0 then
    fail("varlen_attn: window_size: expected two integers of at least -1")
  end
  if not is_causal then return {left, right} end
  if right > 0 then fail("varlen_attn: is_causal and a window_size to the right exclude each other") end
  return {left, 0}
end

--- Attention of each sequence over itself, or over another: softmax(scale query key^T) value, where all sequences are
--- concatenated. query is [T, heads, E], key [S, heads, E], value [S, heads, V]; cu_seq_q and cu_seq_k, int32 or int64
--- [n + 1], are the sequences' offsets: 0, then the end of each; max_q and max_k are the longest lengths. Nothing of
--- the size of the scores is kept, query, key and value may be views of one product. scale is 1 / sqrt(E) if absent.
--- window_size = {left, right} lets a query see that many keys before and after its own position (-1: all); the last
--- query is aligned with the last key, so that {-1, 0} is causal also for a few queries behind many keys. A query that
--- sees no key has zeros as its result. With enable_gqa every head of key and value serves several of query's;
--- seqused_k [n] is the number of keys of each sequence that count. In addition to PyTorch's options: is_causal
--- for {-1, 0}, dropout_p of the weights, and the generator that it draws from.
--
--     local cu = accelhost.tensor({0, 2, 5}, {dtype = "int32"})
--     local q = accelhost.randn(5, 2, 4)
--     F.varlen_attn(q, q, q, cu, cu, 3, 3, {is_causal = true}):size(0)  --> 5
---@return Tensor output [T, heads, V]
---@return Tensor? lse [heads, T], with return_aux = {lse = true}: the logarithms of the sums of exponentials, constants
function F.varlen_attn(...)
  local query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, scale, enable_gqa, is_causal, dropout_p, window,
    return_aux, seqused_k, block_table, num_splits, generator = read(...)
  if block_table then fail("varlen_attn: block_table: there is no cache in pages here") end
  if num_splits and num_splits > 1 then
    fail("varlen_attn: num_splits: keys are never split, so that a result does not depend on its batch; expected 1")
  end
  if return_aux then arguments.check_names("varlen_attn: return_aux", return_aux, {"lse"}) end
  if query:dim() == 3 and key:dim() == 3 and not enable_gqa and query:size(1) ~= key:size(1) then
    fail("varlen_attn: expected as many heads in key as in query (or enable_gqa), got %s and %s", shape_text(key),
      shape_text(query))
  end
  local output, lse = C.attention(query, key, value, nil, cu_seq_q, cu_seq_k, seqused_k, nil, {max_q, max_k},
    window_of(window, is_causal), scale or 1 / math.sqrt(query:size(-1)), dropout_p, {generator = generator})
  if return_aux and return_aux.lse then return output, lse:detach() end
  return output
end

return F
