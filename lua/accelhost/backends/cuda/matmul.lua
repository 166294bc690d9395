--- accelhost.backends.cuda.matmul: how CUDA devices multiply matrices.
local switches = require "accelhost.backends.switches"

local wide = "halves are added up in float32"

--- May products of float32 matrices be computed in TF32? Default false. accelhost.set_float32_matmul_precision is the
--- same switch.
---@names allow_tf32
local rows = {allow_tf32 = switches.of_host "matmul"}

return switches.new("backends.cuda.matmul", rows, nil, {
  fp32_precision = "allow_tf32 is the switch",
  allow_fp16_reduced_precision_reduction = wide, allow_bf16_reduced_precision_reduction = wide,
  allow_fp16_accumulation = wide,
})
