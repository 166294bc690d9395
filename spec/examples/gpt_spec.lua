-- A character GPT is trained, saved, and continues texts.
local write = require("spec.support.files").write
local folder = require "spec.support.folder"
local lfs = require "lfs"
local run = require "spec.support.run"

local EXAMPLES = lfs.currentdir() .. "/examples/"

local function start(path, words, launch)
  local command = {}
  for _, word in ipairs(launch or {}) do command[#command + 1] = word end
  command[#command + 1] = EXAMPLES .. table.remove(words, 1)
  for _, word in ipairs(words) do command[#command + 1] = word end
  return run.host(command, {timeout = 60, dir = path, env = {ACCELHOST_DATA = false}})
end

-- A model of few characters, which generates the same text over and over.
local function train(path, more)
  write(path .. "/text.txt", ("the cat – sat. "):rep(400))
  local words = {"char_gpt.lua", "--data", "text.txt", "--steps", "150", "--layers", "1", "--width", "32",
    "--block_size", "32", "--batch_size", "4", "--warmup", "10", "--lr", "0.01", "--output", "cat"}
  for _, word in ipairs(more or {}) do words[#words + 1] = word end
  return start(path, words)
end

describe("examples/char_gpt.lua and generate.lua", function()
  local path
  setup(function()
    path = folder.make()
    local result = train(path, {"--eval_every", "100"})
    assert.equal(0, result.code, result.output)
    assert.matches("step 100 of 150: loss %d%.%d+, validation %d%.%d+\n", result.stdout)
    assert.is_true(tonumber(result.stdout:match "Loss: ([%d.]+)") < 0.1, result.stdout)
  end)
  teardown(function() folder.remove(path) end)

  it("continue a prompt beyond the model's context, in whole characters", function()
    local result = start(path, {"generate.lua", "--model", "cat", "--prompt", "the c", "--max_new_tokens", "70",
      "--temperature", "0"})
    assert.equal(0, result.code, result.output)
    local wanted = ("the cat – sat. "):rep(5)
    assert.equal(wanted, result.stdout:match "^(.-)\n")
    assert.matches("\nSpeed: %d+%.%d%d tokens/s\n$", result.stdout)
    assert.equal("", result.stderr)
  end)

  it("draw the same for the same seed, and something else for another", function()
    local function text(seed)
      return start(path, {"generate.lua", "--model", "cat", "--prompt", "cat", "--max_new_tokens", "40",
        "--temperature", "3", "--seed", seed}).stdout:match "^(.-)\nSpeed"
    end
    assert.equal(text "1", text "1")
    assert.not_equal(text "1", text "2")
  end)

  it("report a prompt that the tokenizer does not know", function()
    local result = start(path, {"generate.lua", "--model", "cat", "--prompt", "the Z", "--max_new_tokens", "3"})
    assert.equal("the tokenizer does not know all of the prompt: it reads the \n", result.stderr)
    result = start(path, {"generate.lua", "--model", "cat", "--prompt", "Z"})
    assert.equal(1, result.code)
    assert.matches("the tokenizer knows nothing of the prompt", result.stderr)
    result = start(path, {"generate.lua", "--model", "none"})
    assert.equal(1, result.code)
    assert.matches("'none' is no folder %(it does not exist%)", result.stderr)
  end)

  it("learn the same with layers that are computed again, and in float64 and mixed precision something near", function()
    local function loss(more)
      local result = train(path, more)
      assert.equal(0, result.code, result.output)
      return result.stdout:match "Loss: ([%d.]+)"
    end
    local plain = loss {"--dropout", "0.1"}
    assert.equal(plain, loss {"--dropout", "0.1", "--gradient_checkpointing"})
    for _, dtype in ipairs {"float64", "bfloat16"} do
      assert.is_true(tonumber(loss {"--dtype", dtype}) < 0.2)
    end
  end)

  it("train as long as configured", function()
    local result = train(path, {"--minutes", "0.1", "--steps", "10000000", "--width", "8"})
    assert.equal(0, result.code, result.output)
    assert.matches("Loss: %d", result.stdout)
  end)
end)
