-- The Trainer in separate processes: one and two, killed and resumed, stopped by one rank.
local json = require "accelhost.util.json"
local folder = require "spec.support.folder"
local lfs = require "lfs"
local run = require "spec.support.run"

local CASE = lfs.currentdir() .. "/spec/trainer/cases/regression.lua"
local PADDING = lfs.currentdir() .. "/spec/trainer/cases/padding.lua"
local TEXTS = lfs.currentdir() .. "/spec/trainer/cases/texts.lua"

-- Run the case; returns its output, nil when it did not finish, and the process's result.
local function start(path, processes, words)
  local out = path .. "/result.json"
  os.remove(out)
  local all = {}
  if processes > 1 then all = {"launch", "--num_processes", tostring(processes)} end
  for _, word in ipairs {CASE, "--out", out, "--output_dir", path .. "/run"} do all[#all + 1] = word end
  for _, word in ipairs(words) do all[#all + 1] = word end
  local result = run.host(all, {timeout = 60})
  local file = io.open(out)
  if not file then return nil, result end
  local values = json.decode(file:read "*a")
  file:close()
  return values, result
end

local function losses(values)
  local list = {}
  for _, entry in ipairs(values.logs) do list[#list + 1] = entry.loss end
  return list
end

describe("a Trainer's job", function()
  it("resumes after a death in mid-epoch with the same bits, in one process and in two", function()
    for processes = 1, 2 do
      folder.with(function(path)
        local words = {"--save_steps", "3", "--eval_strategy", "steps", "--eval_steps", "4", "--logging_steps", "5",
          "--gradient_accumulation_steps", "2"}
        lfs.mkdir(path .. "/a")
        lfs.mkdir(path .. "/b")
        local whole, first = start(path .. "/a", processes, words)
        assert(whole, first.output)
        local _, died = start(path .. "/b", processes, {"--stop_at", "5", unpack(words)})
        assert.is_true(died.code ~= 0)
        local rest, result = start(path .. "/b", processes,
          {"--resume_from_checkpoint", path .. "/b/run/checkpoint-3", unpack(words)})
        assert(rest, result.output)
        whole.best, rest.best = nil, nil
        assert.same(whole, rest)
      end)
    end
  end)

  it("has the same losses and exact evaluations for any number of processes", function()
    folder.with(function(path)
      local words = {"--dropout", "0", "--eval_strategy", "epoch", "--save_strategy", "no"}
      local one, first = start(path, 1, {"--gradient_accumulation_steps", "2", unpack(words)})
      local two, second = start(path, 2, words)
      assert(one, first.output)
      assert(two, second.output)
      assert.equal(one.step, two.step)
      for i, loss in ipairs(losses(one)) do assert.near(loss, losses(two)[i], 1e-5) end
      assert.same(one.expected, one.labels)
      assert.same(one.expected, two.labels)
      assert.equal(#one.predictions, #two.predictions)
      for i, value in ipairs(one.predictions) do assert.near(value, two.predictions[i], 1e-4) end
      assert.near(one.test_loss, two.test_loss, 1e-5)
    end)
  end)

  it("stops all ranks at the same update when one asks for it", function()
    folder.with(function(path)
      local values, result = start(path, 2, {"--raise_on", "1", "--save_strategy", "no"})
      assert(values, result.output)
      assert.equal(3, values.step)
    end)
  end)

  it("reports the step and the rank of a loss that is not finite", function()
    folder.with(function(path)
      local values, result = start(path, 1, {"--nan_at", "30", "--save_strategy", "no", "--num_train_epochs", "1",
        "--train_sampling_strategy", "sequential"})
      for step = 8, 10 do
        assert.matches(("the loss of step %d is not finite %%(rank 0%%)"):format(step), result.stderr)
      end
      assert.not_matches("the loss of step 7 ", result.stderr)
      assert.is_number(values.loss) -- the mean of the first seven
    end)
  end)

  it("counts the waiting of early stopping on over a resume", function()
    folder.with(function(path)
      local words = {"--patience", "3", "--eval_strategy", "steps", "--eval_steps", "2", "--save_steps", "2",
        "--metric_for_best_model", "loss", "--learning_rate", "0"}
      local whole, first = start(path, 1, words)
      assert(whole, first.output)
      assert.equal(8, whole.step) -- the first evaluation is the best one, and three are no better
      local rest, second = start(path, 1, {"--resume_from_checkpoint", path .. "/run/checkpoint-6", unpack(words)})
      assert(rest, second.output)
      assert.equal(8, rest.step)
    end)
  end)

  it("keeps the newest checkpoints and the best, and ends with the best model", function()
    folder.with(function(path)
      local values, result = start(path, 1, {"--eval_strategy", "steps", "--eval_steps", "5", "--save_steps", "5",
        "--save_total_limit", "2", "--load_best_model_at_end", "--learning_rate", "0.3", "--dropout", "0.5"})
      assert(values, result.output)
      local names = {}
      for name in lfs.dir(path .. "/run") do
        if name:find "^checkpoint" then names[#names + 1] = name end
      end
      assert.is_true(#names == 2)
      assert.is_truthy(lfs.attributes(values.best .. "/model.safetensors"))
      assert.near(values.best_metric, values.test_loss, 1e-6)
      local file = assert(io.open(values.best .. "/trainer_state.json"))
      local state = json.decode(file:read "*a")
      file:close()
      assert.equal(values.best_metric, state.best_metric)
      for _, key in ipairs {"epoch", "global_step", "max_steps", "log_history", "train_batch_size", "logging_steps",
        "num_train_epochs", "best_model_checkpoint", "is_world_process_zero", "stateful_callbacks"} do
        assert.is_truthy(state[key] ~= nil, key)
      end
    end)
  end)

  it("uses the checkpoint before when the newest is damaged", function()
    folder.with(function(path)
      assert(start(path, 1, {"--save_steps", "5", "--max_steps", "10"}))
      local file = assert(io.open(path .. "/run/checkpoint-10/model.safetensors", "r+b"))
      file:seek("end", -1)
      file:write "x"
      file:close()
      local values, result = start(path, 1, {"--save_steps", "5", "--max_steps", "10", "--resume_newest"})
      assert(values, result.output)
      assert.matches("trying .*checkpoint%-5", result.stderr)
      assert.matches("global step 5", result.stdout)
    end)
  end)

  it("trains a BERT on batches of similar length, and resumes in the middle of such a pass", function()
    for processes = 1, 2 do
      folder.with(function(path)
        local words = {TEXTS, "--output_dir", path, "--save_strategy", "steps", "--save_steps", "15"}
        if processes > 1 then words = {"launch", "--num_processes", "2", unpack(words)} end
        local whole = run.host(words, {timeout = 60})
        assert.equal(0, whole.code, whole.output)
        assert.matches("\naccuracy 1%.0000", whole.stdout)
        words[#words + 1], words[#words + 2] = "--resume_from_checkpoint", path .. "/checkpoint-15"
        local rest = run.host(words, {timeout = 60})
        assert.equal(0, rest.code, rest.output)
        assert.equal(whole.stdout:match "\naccuracy [^\n]*", rest.stdout:match "\naccuracy [^\n]*")
      end)
    end
  end)

  it("saves and ends at SIGTERM with enable_jit_checkpoint, and resumes to the same bits", function()
    for processes = 1, 2 do
      folder.with(function(path)
        local words = {"--save_strategy", "no", "--enable_jit_checkpoint"}
        lfs.mkdir(path .. "/a")
        lfs.mkdir(path .. "/b")
        local whole, first = start(path .. "/a", processes, words)
        assert(whole, first.output)
        local part, result = start(path .. "/b", processes, {"--term_at", "4", unpack(words)})
        assert(part, result.output)
        assert.equal(4, part.step)
        assert.matches("Trainer: SIGTERM: the training is saved and ends at step 4", result.stderr, 1, true)
        local rest, second = start(path .. "/b", processes, {"--resume_newest", unpack(words)})
        assert(rest, second.output)
        assert.same(whole.weights, rest.weights)
        assert.equal(whole.step, rest.step)
      end)
    end
  end)

  it("pads the outputs of batches to one length, over any number of processes", function()
    local expected
    for processes = 1, 3 do
      for _, more in ipairs {"--no_batch_eval_metrics", "--batch_eval_metrics"} do
        local words = {PADDING, more}
        if processes > 1 then words = {"launch", "--num_processes", tostring(processes), unpack(words)} end
        local result = run.host(words, {timeout = 60})
        assert.equal(0, result.code, result.output)
        assert.matches("11x7x2 | 11x7 |", result.stdout, 1, true)
        local values = result.stdout:match "(%[%[.*)$"
        expected = expected or values
        assert.equal(expected, values)
      end
    end
    assert.matches("count 11, loss 5.777062", expected, 1, true)
  end)

  it("reports updates of another size after a resume", function()
    folder.with(function(path)
      assert(start(path, 1, {"--save_steps", "10", "--stop_at", "0"}))
      local values, result = start(path, 2, {"--resume_from_checkpoint", path .. "/run/checkpoint-10"})
      assert(values, result.output)
      assert.matches("counted updates of 4 samples, now they have 8: 10 were made, 10 are to come", result.stderr)
      assert.equal(20, values.step)
      assert.equal(3, values.epoch)
    end)
  end)
end)
