--- Functions and tensor methods that are made of ops, in files by family. A file is loaded when one of its names is
--- first used.
local C = require "accelhost._C"
local namespace = require "accelhost.util.namespace"

local functions = {}

-- file -> its names: those that are functions and methods, functions only, methods only; methods that are a
-- function of the file with another name
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
    methods = "new_tensor type apply_ map_",
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
    both = "median nanmedian kthvalue mode quantile nanquantile nanmean aminmax cov corrcoef",
  },
  variants = {
    both = "mvlgamma split_with_sizes real conj resolve_conj resolve_neg round",
    functions = "unravel_index where",
    methods = "addmm_ baddbmm_ addmv_ addr_ addbmm_ round_ sum_to_size",
    renamed = {where = "where_method"},
  },
  windows = {functions = "bartlett_window blackman_window hann_window hamming_window kaiser_window"},
  compare = {both = "allclose equal isclose", functions = "polygamma", methods = "float_power_"},
}

-- A method whose file is not loaded is listed here; an op's is asked for after it.
local lazy_methods = {}
--- The lazy entries of methods, as of accelhost.util.namespace.
functions.methods = lazy_methods

local meta = getmetatable(C.methods)
local find_op, pairs_of, names_of = meta.__index, meta.__pairs, meta.names

function meta.__index(methods, name)
  local method = namespace.load(lazy_methods, name)
  if method == nil then return find_op(methods, name) end
  methods[name] = method
  return method
end

function meta.__pairs(methods)
  for _, name in ipairs(namespace.names(lazy_methods)) do rawset(methods, name, methods[name]) end
  return pairs_of(methods)
end

function meta.names(methods)
  local names = names_of(methods)
  for _, name in ipairs(namespace.names(lazy_methods)) do names[#names + 1] = name end
  return names
end

--- List the functions among the lazy names of accelhost, the methods among a tensor's.
---@param lazy table of accelhost.util.namespace
function functions.install(lazy)
  for file, names in pairs(files) do
    local path = "accelhost.functions." .. file
    namespace.add(lazy, path, {names.both or "", names.functions})
    namespace.add(lazy_methods, path, {names.both or "", names.methods})
    for name, field in pairs(names.renamed or {}) do lazy_methods[name] = {path, field} end
  end
end

return functions
