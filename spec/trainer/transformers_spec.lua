-- Trainings compared with transformers' own (spec/fixtures/trainer.json): the log, the events of each step,
-- the checkpoints kept, and the contents of the state.
local accelhost = require "accelhost"
local folder = require "spec.support.folder"
local json = require "accelhost.util.json"
local lfs = require "lfs"
local run = require "spec.support.run"
local trainings = require "spec.support.trainings"

local data = accelhost.data
local fixture = require("spec.support.fixtures").load "trainer"
local CASE = lfs.currentdir() .. "/spec/trainer/cases/beside.lua"

local function near(expected, got, where)
  if type(expected) == "number" and type(got) == "number" then
    local bound = 1e-6 * math.max(1, math.abs(expected))
    assert.is_true(math.abs(expected - got) <= bound, ("%s: expected %.9g, got %.9g"):format(where, expected, got))
  else
    assert.equal(expected, got, where)
  end
end

local function same_entry(expected, got, where)
  for key, value in pairs(expected) do
    if key == "total_flos" then -- 0 there: of a model that does not count its operations it is not logged here
      assert.same({0}, {value, got[key]}, where .. key)
    elseif value ~= "?" then near(value, got[key], where .. key) else assert.is_number(got[key], where .. key) end
  end
  for key in pairs(got) do assert.is_truthy(expected[key] ~= nil, where .. "has " .. key) end
end

local function same_history(case, history)
  for i, expected in ipairs(case.history) do
    same_entry(expected, history[i] or {}, ("log %d: "):format(i))
  end
  assert.equal(#case.history, #history)
end

local function same_columns(case, history)
  for name, column in pairs(case.columns) do
    local at = 0
    for _, entry in ipairs(history) do
      if entry[name] then
        at = at + 1
        near(column[at], entry[name], ("%s %d: "):format(name, at))
      end
    end
    assert.equal(#column, at)
  end
end

local function checkpoints_in(path)
  local steps = {}
  if not lfs.attributes(path) then return steps end
  for name in lfs.dir(path) do steps[#steps + 1] = tonumber(name:match "^checkpoint%-(%d+)$") end
  table.sort(steps)
  return steps
end

local function file_of(path, steps)
  local file = assert(io.open(("%s/checkpoint-%d/trainer_state.json"):format(path, steps[#steps])))
  local values = json.decode(file:read "*a")
  file:close()
  return values
end

local function same_run(case, trainer, output, seen, path)
  same_history(case, trainer.state.log_history)
  assert.equal(case.events, table.concat(seen, " "))
  near(case.loss, output.training_loss, "training_loss")
  assert.equal(case.step, output.global_step)
  for name, value in pairs(case.state) do near(value, trainer.state[name], "state." .. name) end
  local steps = checkpoints_in(path)
  assert.same(case.checkpoints or {}, steps)
  local best = trainer.state.best_model_checkpoint
  assert.equal(case.best, best and tonumber(best:match "(%d+)$"))
  if not case.keys then return end
  local saved = file_of(path, steps)
  for _, key in ipairs(case.keys) do assert.is_truthy(saved[key] ~= nil, key) end
  assert.same(case.callbacks, saved.stateful_callbacks)
end

local function case_of(name)
  for _, case in ipairs(fixture.cases) do
    if case.name == name then return case end
  end
end

local UNEQUAL = "a model's own loss, batches of two sizes"

local function skip() end

describe("a Trainer compared with transformers'", function()
  for _, case in ipairs(fixture.cases) do
    local check = case.name == UNEQUAL and skip or it
    check("does the same with " .. case.name, function()
      folder.with(function(path)
        local trainer, output, seen = trainings.run(fixture.base, case, path)
        if case.columns then
          same_columns(case, trainer.state.log_history)
        else
          same_run(case, trainer, output, seen, path)
        end
        for i, value in ipairs(trainer.model.two.weight:reshape(-1):tolist()) do
          near(case.weights[i], value, "weight " .. i)
        end
      end)
    end)
  end

  it("averages over samples also with a model's own loss, where transformers' averages micro-batches' means",
    function()
      folder.with(function(path)
        local _, output = trainings.run(fixture.base, case_of(UNEQUAL), path)
        near(case_of("accumulation with a short last window").loss, output.training_loss, "training_loss")
        assert.is_true(math.abs(case_of(UNEQUAL).loss - output.training_loss) > 1e-3)
      end)
    end)

  -- There transformers fills the last round of an evaluation up with rows that were seen already, and its eval_loss is
  -- no mean over the set.
  it("does the same in two processes but for the loss of an evaluation", function()
    folder.with(function(path)
      local result = run.host({"launch", "--num_processes", "2", CASE, path .. "/found.json", path}, {timeout = 60})
      assert.equal(0, result.code, result.output)
      local file = assert(io.open(path .. "/found.json"))
      local all = json.decode(file:read "*a")
      file:close()
      for i, case in ipairs(fixture.two) do
        local found = all[i]
        for _, entry in ipairs(case.history) do
          if entry.eval_loss then entry.eval_loss = "?" end
        end
        same_history(case, found.history)
        assert.equal(case.events, found.events)
        near(case.loss, found.loss, case.name)
        assert.equal(case.step, found.step)
        assert.equal(case.best, found.best and tonumber(found.best:match "(%d+)$"))
        assert.same(case.checkpoints or {}, checkpoints_in(("%s/%d"):format(path, i)))
        for k, value in ipairs(found.weights) do near(case.weights[k], value, case.name .. ": weight " .. k) end
      end
    end)
  end)

  it("groups samples of similar length in the same order", function()
    for _, order in ipairs(fixture.orders) do
      local set = data.Dataset:extend "Lengths"
      function set:len() return #order.lengths end -- luacheck: ignore self
      function set:get(i) return {length = order.lengths[i + 1]} end -- luacheck: ignore self
      local Sampler = require "accelhost.trainer.length_grouped"
      local draw = {}
      for i = 0, 7 do draw[i + 1] = i == 5 and order.seed or 0 end
      local got = {}
      for index in Sampler(set(), order.batch, "length"):iter(accelhost.tensor(draw, {dtype = "uint8"})) do
        got[#got + 1] = index
      end
      assert.same(order.order, got)
    end
  end)
end)
