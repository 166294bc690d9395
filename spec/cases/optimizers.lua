--- The optimizers of accelhost.optim, a row each, for specs, scripts/fixtures/optim.py, scripts/compare and scripts/gpu
--- (the Python scripts read them by scripts/spec_cases.lua).
--
--   fused     the step is one pass in C over the parameters, on every device; shards and captured steps have it too
--   matrix    parameters have to be matrices
--   closure   a step evaluates the loss
--   train     options of a training loop that moves weights within few steps and fills every state
--   options   option -> values other than the default: specs test the first, scripts/compare draws one
--   values    option -> a value that is tested and not drawn
--   with      option -> options without which it has no effect
--   cases     options of the steps whose results are PyTorch's in spec/fixtures/optim.json, in its order
--   group     options of the second of two groups there
--   exact     float32 steps are PyTorch's to the bit: no square root, which MKL does not always round to nearest
--   near      largest difference in float64 after four steps of several processes (1e-8)
local null = require("accelhost").json.null

local rows = {
  {"SGD", fused = true, exact = true, train = {lr = 0.1, momentum = 0.9, nesterov = true},
    options = {lr = {0.1, 0.5}, momentum = {0.9, 0}, dampening = {0.3, 0}, nesterov = {true}},
    with = {dampening = {momentum = 0.9}, nesterov = {momentum = 0.9}},
    cases = {
      "lr = 0.1", "lr = 0.1, weight_decay = 0.05", "lr = 0.1, momentum = 0.9",
      "lr = 0.1, momentum = 0.9, dampening = 0.3, weight_decay = 0.01", "lr = 0.1, momentum = 0.9, nesterov = true",
      "lr = 0.1, momentum = 0.9, nesterov = true, weight_decay = 0.1, maximize = true",
    }, group = "lr = 0.2, momentum = 0.5"},
  {"Adam", fused = true, train = {lr = 1e-2, amsgrad = true},
    options = {betas = {{0.5, 0.9}, {0, 0.99}}, eps = {1e-3, 0.1}, amsgrad = {true}, decoupled_weight_decay = {true}},
    with = {amsgrad = {betas = {0.9, 0.1}}, decoupled_weight_decay = {weight_decay = 0.3}},
    cases = {
      "", "lr = 0.01, betas = {0.8, 0.95}, eps = 1e-6", "lr = 0.01, weight_decay = 0.1", "lr = 0.01, amsgrad = true",
      "lr = 0.01, weight_decay = 0.1, amsgrad = true, maximize = true",
      "lr = 0.01, weight_decay = 0.1, decoupled_weight_decay = true",
    }, group = "lr = 0.2, betas = {0.5, 0.5}"},
  {"AdamW", fused = true, train = {lr = 1e-3, amsgrad = true},
    options = {weight_decay = {0, 0.3}, amsgrad = {true}}, with = {amsgrad = {betas = {0.9, 0.1}}},
    cases = {
      "", "lr = 0.01, betas = {0.8, 0.95}, weight_decay = 0.2", "lr = 0.01, amsgrad = true",
      "lr = 0.01, weight_decay = 0, maximize = true",
    }, group = "weight_decay = 0.3"},
  {"RMSprop", fused = true, train = {lr = 1e-3, momentum = 0.5, centered = true},
    options = {alpha = {0.5}, momentum = {0.5, 0.9}, centered = {true}},
    cases = {
      "", "lr = 0.02, alpha = 0.9, weight_decay = 0.1", "lr = 0.02, momentum = 0.9", "lr = 0.02, centered = true",
      "lr = 0.02, centered = true, momentum = 0.5, weight_decay = 0.01, maximize = true",
    }, group = "alpha = 0.5"},
  {"Adagrad", fused = true, train = {lr = 1e-2},
    options = {lr = {0.1, 1}, lr_decay = {0.1}, initial_accumulator_value = {0.5}},
    cases = {
      "", "lr = 0.1, lr_decay = 0.1, weight_decay = 0.1, initial_accumulator_value = 0.5", "lr = 0.1, maximize = true",
    }, group = "lr_decay = 0.5"},
  {"Adadelta", fused = true, train = {lr = 1}, options = {lr = {0.5, 1}, rho = {0.5}},
    cases = {"", "lr = 0.5, rho = 0.8, weight_decay = 0.1", "lr = 0.5, maximize = true"}, group = "rho = 0.5"},
  {"NAdam", fused = true, train = {lr = 1e-2}, options = {momentum_decay = {0.1}, decoupled_weight_decay = {true}},
    with = {decoupled_weight_decay = {weight_decay = 0.3}},
    cases = {
      "", "lr = 0.01, betas = {0.4, 0.95}, weight_decay = 0.1, momentum_decay = 0.1, eps = 1e-4",
      "lr = 0.01, weight_decay = 0.1, decoupled_weight_decay = true, maximize = true",
    }, group = "momentum_decay = 0.2"},
  {"RAdam", fused = true, train = {lr = 1e-2, betas = {0.5, 0.9}},
    options = {betas = {{0.5, 0.9}, {0.9, 0.99}}, decoupled_weight_decay = {true}},
    with = {decoupled_weight_decay = {weight_decay = 0.3}},
    cases = {
      "", "lr = 0.05, betas = {0.8, 0.9}, eps = 1e-3, weight_decay = 0.1",
      "lr = 0.05, weight_decay = 0.1, decoupled_weight_decay = true, maximize = true",
    }, group = "betas = {0.5, 0.6}"},
  {"Adamax", fused = true, exact = true, train = {lr = 1e-2},
    cases = {"", "lr = 0.05, betas = {0.8, 0.9}, eps = 1e-3, weight_decay = 0.1, maximize = true"},
    group = "lr = 0.2"},
  {"ASGD", fused = true, exact = true, train = {lr = 1e-2, t0 = 2},
    options = {lambd = {0.1}, alpha = {0.5}, t0 = {2, 5}}, with = {alpha = {lambd = 0.5}},
    cases = {
      "", "lr = 0.1, lambd = 0.1, alpha = 0.5, t0 = 4, weight_decay = 0.1", "lr = 0.1, t0 = 2, maximize = true",
    }, group = "t0 = 3, alpha = 0.5"},
  {"Rprop", fused = true, exact = true, train = {lr = 1e-2},
    options = {etas = {{0.4, 1.3}}, step_sizes = {{1e-3, 2}}}, values = {step_sizes = {0.05, 0.06}},
    cases = {"", "lr = 0.1, etas = {0.3, 1.5}, step_sizes = {0.02, 0.2}, maximize = true"},
    group = "etas = {0.2, 1.7}"},
  -- PyTorch does not have it, so it is not drawn.
  {"Lion", fused = true, exact = true, own = true, train = {lr = 1e-2}, options = {betas = {{0.01, 0.02}}},
    cases = {"", "lr = 0.01, betas = {0.5, 0.8}, weight_decay = 0.1, maximize = true"}, group = "lr = 0.1"},
  {"Adafactor", train = {lr = 1e-2},
    options = {beta2_decay = {-0.5}, eps = {{1e-5, 1e-2}, {null, 0.1}}, d = {2, 0.5}},
    values = {eps = {0.5, 0.5}, beta2_decay = -0.2, d = 3},
    cases = {
      "", "lr = 0.1, beta2_decay = -0.5, eps = {0.01, 0.1}, d = 2, weight_decay = 0.1, maximize = true",
    }, group = "d = 3"},
  -- It multiplies in bfloat16.
  {"Muon", matrix = true, train = {lr = 1e-2}, near = 1e-3,
    options = {weight_decay = {0, 0.3}, momentum = {0.5}, nesterov = {false}, ns_steps = {3},
      adjust_lr_fn = {"match_rms_adamw", "original"}, eps = {}},
    values = {eps = 20, ns_coefficients = {2, -1.5, 0.5}},
    cases = {
      "", "lr = 0.02, weight_decay = 0.3, momentum = 0.8, nesterov = false, ns_steps = 3, eps = 1e-3, "
        .. 'adjust_lr_fn = "match_rms_adamw"',
      'lr = 0.02, ns_coefficients = {2, -1.5, 0.5}, adjust_lr_fn = "spectral_unclamped"',
    }},
  -- Its line search magnifies rounding differences of sums in another order.
  {"LBFGS", closure = true, train = {lr = 0.5, line_search_fn = "strong_wolfe"}, near = 5e-8,
    options = {lr = {0.1, 0.5}, max_iter = {2, 5}, history_size = {2}, line_search_fn = {"strong_wolfe"},
      tolerance_grad = {1e-3}, tolerance_change = {1e-4}, maximize = {}},
    cases = {
      "lr = 1e-2, max_iter = 3", 'line_search_fn = "strong_wolfe"',
      'line_search_fn = "strong_wolfe", history_size = 2, max_iter = 5',
      'line_search_fn = "strong_wolfe", max_eval = 7, lr = 0.5, tolerance_change = 1e-3',
      "lr = 1e-2, max_iter = 4, max_eval = 3, tolerance_grad = 1e-2",
      'line_search_fn = "strong_wolfe", maximize = true',
    }},
}

-- Values of options that many have.
local usual = {lr = {0.1}, betas = {{0.5, 0.9}}, eps = {1e-3}, weight_decay = {0.1}, maximize = {true}}

local optimizers = {}
for i, row in ipairs(rows) do
  row.name, row[1] = row[1], nil
  row.options = setmetatable(row.options or {}, {__index = usual})
  optimizers[i], optimizers[row.name] = row, row
end

--- The names of the rows that a test accepts, in their order.
---@param accepts fun(row: table): boolean?
---@return string[]
function optimizers.names(accepts)
  local names = {}
  for _, row in ipairs(optimizers) do
    if accepts(row) then names[#names + 1] = row.name end
  end
  return names
end

--- The names of those whose step is one pass in C.
---@return string[]
function optimizers.fused()
  return optimizers.names(function(row) return row.fused end)
end

--- A copy of the options that train with it, changed by others.
---@param name string
---@param changes? table
---@return table
function optimizers.train(name, changes)
  local options = {}
  for option, value in pairs(optimizers[name].train) do options[option] = value end
  for option, value in pairs(changes or {}) do options[option] = value end
  return options
end

return optimizers
