--- The activations of accelhost.nn, rows of layers.lua with options for `make compare` (scripts/compare/modules.py):
--
--   fn        the function of accelhost.nn.functional where it is not the name in lower case; false: there is none
--   values    option -> values among which options of the class and of the function are drawn
--   required  true: the class always has them
local inputs = require "spec.cases.inputs"
local images, rows = inputs.images, inputs.rows

local activations = {
  {"ReLU", {}, {rows}, values = {inplace = {false}}},
  {"ReLU6", {}, {rows}},
  {"GELU", {}, {rows}, values = {approximate = {"none", "tanh"}}},
  {"SiLU", {}, {rows}},
  {"Tanh", {}, {rows}},
  {"Sigmoid", {}, {rows}},
  {"LeakyReLU", {}, {rows}, fn = "leaky_relu", values = {negative_slope = {0.3, 0, 1, -0.5}}},
  {"ELU", {}, {rows}, values = {alpha = {0.5, 2}}},
  {"Softplus", {}, {rows}, values = {beta = {0.5, 3}, threshold = {1, 5}}, options = {threshold = 0}},
  {"Softmax", {}, {rows}, values = {dim = {-1, 0, 1, -2}}, required = true, options = {dim = 0}, train = {dim = 1}},
  {"LogSoftmax", {}, {rows}, fn = "log_softmax",
    values = {dim = {-1, 0, 1, -2}}, required = true, options = {dim = 0}, train = {dim = 1}},
  {"Hardtanh", {}, {rows},
    values = {min_val = {-2, -0.5}, max_val = {0.5, 2}}, options = {min_val = -0.5, max_val = 0.5}},
  {"CELU", {}, {rows}, values = {alpha = {0.5, 2}}, cases = {{"", "2,6"}, {"0.5", "2,6"}}},
  {"SELU", {}, {rows}, cases = {{"", "2,6"}}},
  {"Mish", {}, {rows}, cases = {{"", "2,6"}}},
  {"Hardswish", {}, {rows}, cases = {{"", "2,6"}}},
  {"Hardsigmoid", {}, {rows}},
  {"Threshold", {0.5, 3}, {rows}, values = {threshold = {0.1, 0, 1, -1}, value = {20, -0.5, 0}}, required = true,
    cases = {{"0.1, 20", "2,6"}}},
  {"LogSigmoid", {}, {rows}, cases = {{"", "2,6"}}},
  {"Softsign", {}, {rows}, cases = {{"", "2,6"}}},
  {"Tanhshrink", {}, {rows}, cases = {{"", "2,6"}}},
  {"Hardshrink", {}, {rows}, values = {lambd = {0.3, 0, 1}}, cases = {{"", "2,6"}, {"0.3", "2,6"}}},
  {"Softshrink", {}, {rows}, values = {lambd = {0.3, 0, 1}}, cases = {{"", "2,6"}, {"0.25", "2,6"}}},
  {"GLU", {}, {rows}, values = {dim = {-1, 0, 1}}, options = {dim = 1}, cases = {{"", "2,6"}, {"0", "2,6"}}},
  {"Softmin", {}, {rows}, values = {dim = {-1, 0, 1, -2}}, required = true, options = {dim = 0}, train = {dim = 1},
    cases = {{"1", "2,6"}}},
  {"Softmax2d", {}, {images}, fn = false},
  {"PReLU", {}, {rows}, options = {num_parameters = 4}, train = {num_parameters = 4},
    cases = {{"", "2,6"}, {"6, 0.5", "2,6"}}},
  {"RReLU", {}, {rows}, values = {lower = {0.1}, upper = {0.5}}, options = {lower = 0.2, upper = 0.5},
    cases = {{"", "2,6"}, {"0.2, 0.4", "2,6"}}},
}

for _, row in ipairs(activations) do
  if row.fn == nil then row.fn = row[1]:lower() end
end

return activations
