--- Functions and tensor methods that are made of ops, in files by family. A file is loaded when one of its names is
--- first used.
local C = require "accelhost._C"
local namespace = require "accelhost.util.namespace"

local functions = {}

-- file -> its names: those that are functions and methods, functions only, methods only; where a method is another
-- function of the file than its name says, name=field
local files = {
  einsum = {functions = "einsum"},
  join = {
    both = "tensor_split hsplit vsplit dsplit",
    functions = "atleast_1d atleast_2d atleast_3d hstack vstack row_stack dstack column_stack block_diag"
      .. " broadcast_shapes broadcast_tensors meshgrid cartesian_prod combinations",
  },
  layout = {
    both = "rot90 fliplr flipud ravel diag_embed diag diagflat trace as_strided",
    functions = "tril_indices triu_indices vander",
    methods = "unfold squeeze_ unsqueeze_ t_ transpose_ swapdims_ swapaxes_",
  },
  products = {both = "inner vdot kron cross dist addmv addr addbmm", functions = "tensordot cdist"},
  create = {
    both = "is_complex is_signed is_nonzero is_same_size isreal positive",
    functions = "logspace as_tensor scalar_tensor randint_like normal numel is_floating_point",
    methods = "new_tensor apply_ map_",
  },
  order = {
    both = "msort unique unique_consecutive diff histc",
    functions = "searchsorted bucketize isin trapezoid trapz cumulative_trapezoid",
  },
  placing = {
    both = "scatter_reduce index_reduce select_scatter slice_scatter diagonal_scatter index_put put nonzero argwhere",
    methods = "scatter_reduce_ index_reduce_ fill_diagonal_ index_put_ put_",
  },
  statistics = {
    both = "median nanmedian kthvalue mode quantile nanquantile nansum nanmean aminmax cov corrcoef",
  },
  variants = {
    both = "renorm mvlgamma split_with_sizes real conj resolve_conj resolve_neg",
    functions = "unravel_index where",
    methods = "addmm_ baddbmm_ addmv_ addr_ addbmm_ renorm_ sum_to_size where=where_method",
  },
  windows = {functions = "bartlett_window blackman_window hann_window hamming_window kaiser_window"},
  compare = {both = "allclose equal isclose", functions = "polygamma", methods = "float_power_"},
}

local function words(text)
  local list = {}
  for word in (text or ""):gmatch "%S+" do list[#list + 1] = word end
  return list
end

-- Loads its file at the first call and is replaced by what the file has.
local function stub(path, name, field)
  return function(...)
    local method = require(path)[field]
    C.methods[name] = method
    return method(...)
  end
end

--- List the functions among the lazy names of accelhost, the methods among a tensor's.
---@param lazy table<string, table> of accelhost.util.namespace
function functions.install(lazy)
  for file, names in pairs(files) do
    local path = "accelhost.functions." .. file
    namespace.add(lazy, path, words(names.both))
    namespace.add(lazy, path, words(names.functions))
    for _, list in ipairs {names.both, names.methods} do
      for _, word in ipairs(words(list)) do
        local name, field = word:match "^([%w_]+)=?([%w_]*)$"
        C.methods[name] = stub(path, name, field ~= "" and field or name)
      end
    end
  end
end

return functions
