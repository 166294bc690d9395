--- accelhost.backends: how CUDA devices compute, by PyTorch's names. Each is a field that is read and set.
--
--     accelhost.backends.cuda.matmul.allow_tf32 = true   -- products of float32 matrices on tensor cores
--     accelhost.backends.cudnn.allow_tf32 = false        -- convolutions in unrounded float32
--
-- TF32 rounds float32 to 10 bits behind the point before it is multiplied, and adds up in float32. As in PyTorch it is
-- off for products of matrices and on for convolutions. Recurrent layers are products here, and attention of float32
-- is never rounded. The CPU computes float32 as float32 with each setting.
--
-- With cudnn.enabled = false convolutions are products of matrices, and attention is computed by the program's own
-- kernels. cudnn.deterministic is always true (but for ACCELHOST_CUDA_ATTENTION=unordered), and cudnn.benchmark false:
-- nothing adds up in another order from run to run, and nothing is timed.
local cudnn = require "accelhost.backends.cudnn"
local matmul = require "accelhost.backends.cuda.matmul"
local switches = require "accelhost.backends.switches"

local one_switch = "allow_tf32 is the switch"

local kernel = "ACCELHOST_CUDA_ATTENTION chooses between cuDNN's attention and the program's own"
local cuda = switches.new("backends.cuda", {}, {matmul = matmul}, {
  flash_sdp_enabled = kernel, enable_flash_sdp = kernel, mem_efficient_sdp_enabled = kernel,
  enable_mem_efficient_sdp = kernel, math_sdp_enabled = kernel, enable_math_sdp = kernel, sdp_kernel = kernel,
  cudnn_sdp_enabled = kernel, enable_cudnn_sdp = kernel, fp32_precision = one_switch,
  is_built = "accelhost.cuda.is_available reports devices",
  preferred_linalg_library = "factorizations are LAPACK's", preferred_blas_library = "products are cuBLASLt's",
  cufft_plan_cache = "there are no Fourier transforms",
})

local mps, processor = "there are no devices of this kind", "the CPU's kernels are chosen by its features"
return switches.new("backends", {}, {cuda = cuda, cudnn = cudnn}, {
  fp32_precision = "backends.cuda.matmul.allow_tf32 and backends.cudnn.allow_tf32 are the switches",
  mps = mps, mha = kernel, mkl = processor, mkldnn = processor, openmp = processor,
  cpu = processor, quantized = "there are no quantized tensors", opt_einsum = "einsum contracts from left to right",
})
