-- Mistakes of scripts that run in several processes.
local mistake = require "spec.support.mistake"

-- In two processes the script fails in one or both; its message has these texts.
local function each(rows)
  for _, row in ipairs(rows) do
    it(row[1], function()
      local result = mistake.run(row[2], {"launch", "--num_processes", "2", "--timeout", "3"})
      assert.equal(row.code or 3, result.code, result.output)
      for i = 3, #row do
        assert(result.stderr:find(row[i], 1, true), ("no '%s' in: %s"):format(row[i], result.stderr))
      end
      assert.is_nil(result.stderr:find("accelhost/", 1, true), result.stderr)
    end)
  end
end

describe("In several processes the message names", function()
  each {
    {"a collective that the main process makes alone",
      "if accelerator.is_main_process then accelerator:gather(x) end accelerator:wait_for_everyone()",
      "train.lua:12: collective #1 differs: rank 0 all_gather", "rank 1 barrier at train.lua:12",
      "none inside `if accelerator.is_main_process`"},
    {"a gather that meets another process's backward",
      "model = accelerator:prepare(model) if accelerator.is_main_process then accelerator:gather(x) end " ..
      "accelerator:backward(F.cross_entropy(model(x), y))", "in gather at train.lua:12", "in backward at train.lua:12"},
    {"the process that makes fewer steps",
      "model = accelerator:prepare(model) for i = 1, 2 + accelerator.process_index do " ..
      "accelerator:backward(F.cross_entropy(model(x), y)) end",
      "rank 1 failed: train.lua:12:", "rank 0 ended without it",
      "a prepared loader yields the same number of batches to each"},
    {"a process that ends early",
      "if accelerator.process_index == 1 then os.exit(0) end accelerator:wait_for_everyone()",
      "rank 1 ended without it (rank 1 has not reached its first collective)"},
    {"a process that hangs",
      "if accelerator.process_index == 1 then while true do end end accelerator:wait_for_everyone()",
      "timed out after 3 s: rank 1 has not reached its first collective", "launch --timeout SECONDS", code = 4},
    {"the process that failed first", 'if accelerator.process_index == 1 then error "boom" end ' ..
      "accelerator:wait_for_everyone()", "rank 1 failed: train.lua:12: boom", "rank 0 ended because of it"},
    {"parameters that differ", "accelerator:prepare(nn.Linear(4, 2 + accelerator.process_index))",
      "prepare: number 0 of the parameters is float32 (3, 4) on rank 1, float32 (2, 4) on rank 0",
      "every process has to build the same model"},
    {"shapes that cannot be gathered",
      "accelerator:gather(accelhost.ones(2, 3 + accelerator.process_index))", "differs: rank 0", "(2, 3)", "(2, 4)",
      "tensors of one gather have one dtype"},
    {"a word that a reduction does not know", 'accelerator:reduce(x, "avg")',
      "reduce: expected sum, mean, max, min or product, got 'avg'"},
    {"a model that was changed after prepare",
      "accelerator:prepare(model) model.fc9 = nn.Linear(2, 2) accelerator:backward(model.fc9(model(x)):sum())",
      "backward: the model's parameters changed since prepare (parameter 5 of 6); prepare it again"},
    {"the nearest name, once for both", "model.fc3(x)", "model (Net) has no 'fc3'; did you mean 'fc1'?",
      "failed in the same way"},
  }
end)

describe("In several processes a warning reports", function()
  each {
    {"a backward without a prepared model", "F.cross_entropy(model(x), y):backward()",
      "warning: backward: the loss depends on no prepared model", "(train.lua:12)", code = 0},
    {"a prepared optimizer of a model that is not",
      "optimizer = accelerator:prepare(optimizer) accelhost.no_grad(function() " ..
      "for _, p in ipairs(model:parameters()) do p.grad = accelhost.zeros_like(p) end end) optimizer:step()",
      "SGD:step: parameter 1 3 x 4 belongs to no prepared model", "(train.lua:12)", code = 0},
  }
end)

describe("In several processes a plain backward", function()
  it("averages the gradients of a prepared model", function()
    local result = mistake.run([[
model, optimizer = accelerator:prepare(model, optimizer)
x = x + accelerator.process_index
for _ = 1, 3 do
  optimizer:zero_grad()
  F.cross_entropy(model(x), y):backward()
  optimizer:step()
end
local w = accelerator:gather(model.fc1.weight:detach():sum():reshape(1))
accelerator:print(w[0]:item() == w[1]:item())]], {"launch", "--num_processes", "2"})
    assert.equal("", result.stderr)
    assert.equal("true\n", result.stdout)
  end)
end)
