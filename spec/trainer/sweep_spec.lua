-- A Trainer in the trials of a sweep: its logs are the trial's reports, and all ranks of a trial end at the same
-- one.
local C = require "accelhost._C"
local write = require("spec.support.files").write
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local script = [[
local accelhost = require "accelhost"
local nn, F, data = accelhost.nn, accelhost.nn.functional, accelhost.data
local own = accelhost.args {lr = 0.01}
accelhost.manual_seed(3)
local x = accelhost.randn(40, 5)
local set = data.TensorDataset(x, x:sum(1):gt(0):to "int64")
local trainer = accelhost.Trainer {
  model = nn.Linear(5, 2), train_dataset = set, eval_dataset = set,
  args = {output_dir = "out", learning_rate = own.lr, eval_strategy = "epoch", num_train_epochs = 4,
    save_strategy = "no", disable_tqdm = true},
  compute_loss_func = function(outputs, labels) return F.cross_entropy(outputs, labels) end,
}
trainer:train()
]]

local search = [[
local sweep = require "accelhost".sweep
return {
  script = "train.lua", space = {lr = sweep.choice {0.1, 0.01, 0.001, 0.00001}}, metric = "eval_loss",
  sampler = "grid", pruner = "median", trials = 4, num_processes = 2,
}
]]

describe("A Trainer in a sweep", function()
  if not pcall(C.sqlite.open, ":memory:") then return pending "needs accelhost-sqlite.so" end

  it("reports each evaluation, from two processes that end together", function()
    local leave = folder.enter()
    write("train.lua", script)
    write("search.lua", search)
    local result = run.host({"sweep", "search.lua", "-j", "1", "--quiet"}, {timeout = 60})
    local db = C.sqlite.open("search.study/study.db", "read")
    local rows = db:execute "SELECT trial, max(step) AS last, count(*) AS n FROM report GROUP BY trial ORDER BY trial"
    local states = db:execute "SELECT state FROM trial WHERE state = 'failed'"
    db:close()
    leave()
    assert.equal(0, result.code, result.output)
    assert.equal(4, #rows)
    assert.equal(0, #states)
    assert.equal(12, rows[1].last) -- 3 updates of 16 samples in an epoch
  end)
end)
