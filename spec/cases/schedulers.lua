--- The schedulers of accelhost.optim, a row each, for specs, scripts/fixtures/optim.py and scripts/compare.
--
--   space      "swa_utils", where it is not in optim.lr_scheduler
--   required   {name, values}, ...: arguments that always are given; specs compare the first value with the second
--   options    option -> values other than the default: specs test the first, scripts/compare draws one
--   values     option -> a value that is tested and not drawn
--   with       option -> options without which it has no effect
--   base       arguments that the specs give in addition or instead
--   last_epoch the one that is tested (2); false: it has no effect, since rates follow from those in force
--   part       scripts/compare makes sequences and chains of it
--   cases      options whose rates are PyTorch's in spec/fixtures/optim.json, in its order; with momentum = true, or
--              metrics = {...}, on which the rates depend
local schedulers = {}

--- The texts of functions, by function: expressions of n in both Lua and Python.
schedulers.formulas = {}

local function formula(text)
  local fn = assert(loadstring("local n = ... return " .. text))
  schedulers.formulas[fn] = text
  return fn
end

local falling, half = formula "1 / (n + 1)", formula "0.5"

local rows = {
  {"StepLR", part = true, required = {{"step_size", {2, 3, 1}}}, options = {gamma = {0.5}},
    cases = {{"step_size = 3, gamma = 0.5"}}},
  {"MultiStepLR", part = true, required = {{"milestones", {{2, 5}, {3}, {1, 3, 4}}}}, options = {gamma = {0.5}},
    cases = {{"milestones = {2, 5, 5, 9}, gamma = 0.3"}}},
  {"ConstantLR", part = true, options = {factor = {0.5}, total_iters = {2, 3}}, last_epoch = 4,
    cases = {{"factor = 0.25, total_iters = 4"}, {""}}},
  {"LinearLR", part = true, options = {start_factor = {0.5}, end_factor = {0.8}, total_iters = {2, 4}},
    cases = {{"start_factor = 0.2, end_factor = 0.9, total_iters = 6"}, {""}}},
  {"ExponentialLR", part = true, required = {{"gamma", {0.9, 0.5}}}, last_epoch = false, cases = {{"gamma = 0.9"}}},
  {"PolynomialLR", part = true, options = {total_iters = {3, 4}, power = {2, 0.5}},
    cases = {{"total_iters = 7, power = 2"}, {""}}},
  {"CosineAnnealingLR", part = true, required = {{"T_max", {5, 4, 3, 2, 1}}}, options = {eta_min = {0.01}},
    cases = {{"T_max = 5, eta_min = 0.001"}, {"T_max = 20"}}},
  {"CosineAnnealingWarmRestarts", required = {{"T_0", {2, 3, 1}}}, options = {T_mult = {2}, eta_min = {0.01}},
    cases = {{"T_0 = 3"}, {"T_0 = 2, T_mult = 2, eta_min = 0.005"}}},
  {"OneCycleLR", required = {{"max_lr", {1, 0.5}}, {"total_steps", {35, 40}}}, base = {total_steps = 9},
    options = {pct_start = {0.5}, anneal_strategy = {"linear", "cos"}, cycle_momentum = {false}, base_momentum = {0.7},
      max_momentum = {0.9}, div_factor = {10}, final_div_factor = {100}, three_phase = {true}},
    cases = {
      {"max_lr = 0.5, total_steps = 12", momentum = true},
      {"max_lr = {0.5, 0.3}, epochs = 3, steps_per_epoch = 4, pct_start = 0.25, anneal_strategy = 'linear', "
        .. "three_phase = true, div_factor = 10, final_div_factor = 100", momentum = true},
    }},
  {"CyclicLR", required = {{"base_lr", {0.1, 0.01}}, {"max_lr", {1, 0.5}}}, base = {step_size_up = 2},
    options = {step_size_up = {3, 2}, step_size_down = {1, 2}, mode = {"triangular2", "triangular", "exp_range"},
      gamma = {0.9}, scale_fn = {falling}, scale_mode = {"iterations", "cycle"}, cycle_momentum = {false}},
    values = {base_momentum = 0.1, max_momentum = 0.99},
    with = {gamma = {mode = "exp_range"}, scale_mode = {scale_fn = falling}},
    cases = {
      {"base_lr = 0.01, max_lr = 0.1, step_size_up = 3", momentum = true},
      {"base_lr = 0.01, max_lr = 0.1, step_size_up = 2, step_size_down = 3, mode = 'triangular2'", momentum = true},
      {"base_lr = 0.01, max_lr = 0.1, step_size_up = 2, mode = 'exp_range', gamma = 0.9, cycle_momentum = false"},
    }},
  {"ReduceLROnPlateau", base = {patience = 1}, last_epoch = false,
    options = {mode = {"max", "min"}, factor = {0.5}, patience = {0, 1}, threshold = {0.5, 0.1},
      threshold_mode = {"abs", "rel"}, cooldown = {1}, min_lr = {0.02}, eps = {0.01}},
    values = {threshold = 0.6, cooldown = 3, min_lr = 0.05, eps = 1},
    with = {threshold_mode = {threshold = 0.3}, cooldown = {patience = 0}},
    cases = {
      {"patience = 1, factor = 0.5, min_lr = 0.02",
        metrics = {1, 0.9, 0.9, 0.9, 0.8, 0.8, 0.8, 0.8, 0.8, 0.7, 0.7, 0.7}},
      {"mode = 'max', patience = 0, cooldown = 2, threshold = 0.1, threshold_mode = 'abs'",
        metrics = {0.1, 0.15, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.5, 0.5, 0.5, 0.5}},
    }},
  {"LambdaLR", required = {{"lr_lambda", {falling, half}}}},
  {"MultiplicativeLR", required = {{"lr_lambda", {formula "0.5 + n / 100", half}}}},
  {"SWALR", space = "swa_utils", required = {{"swa_lr", {0.05, 0.5}}}, last_epoch = false,
    options = {anneal_epochs = {2, 5}, anneal_strategy = {"linear", "cos"}}},
}

for i, row in ipairs(rows) do
  row.name, row[1] = row[1], nil
  row.required, row.options = row.required or {}, row.options or {}
  schedulers[i] = row
end

return schedulers
