-- Rotation removes checkpoints of this program and nothing else: no folder of another program, no file of a user in a
-- checkpoint, nothing to which a link leads.
local lfs = require "lfs"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local write = files.write

-- Saves arg[2] times, keeping one checkpoint.
local saves = [[
  local accelhost = require "accelhost"
  local accelerator = accelhost.Accelerator {
    project_config = {project_dir = arg[1], automatic_checkpoint_naming = true, total_limit = 1}}
  accelerator:prepare(accelhost.nn.Linear(2, 2))
  accelerator:register_save_state_pre_hook(function(_, _, path)
    if arg[3] then os.execute(("cd '%s' && %s"):format(path, arg[3])) end
  end)
  for _ = 1, tonumber(arg[2]) do accelerator:save_state() end
]]

-- Trains arg[2] updates, saves each, keeps two checkpoints.
local trains = [[
  local accelhost = require "accelhost"
  local nn, data = accelhost.nn, accelhost.data
  local trainer = accelhost.Trainer {
    model = nn.Linear(4, 1), train_dataset = data.TensorDataset(accelhost.randn(8, 4), accelhost.randn(8, 1)),
    args = {output_dir = arg[1], max_steps = tonumber(arg[2]), save_steps = 1, save_strategy = "steps",
      save_total_limit = 2, per_device_train_batch_size = 4, logging_strategy = "no", report_to = "none"},
    compute_loss_func = function(outputs, labels) return nn.functional.mse_loss(outputs, labels) end,
  }
  trainer:train(arg[3] and {resume_from_checkpoint = true} or nil)
]]

local function start(script, ...)
  local result = run.script(script, {args = {...}})
  assert.equal(0, result.code, result.output)
  return result.stderr
end

-- The lines about files that were not removed, without the path in front.
local function left(said)
  local lines = {}
  for path, reason in said:gmatch "accelhost: not removed: '([^\n']*)'([^\n]*)" do
    lines[#lines + 1] = path:match "[^/]*$" .. reason
  end
  return lines
end

local function exists(path) return lfs.symlinkattributes(path) ~= nil end

describe("Old checkpoints", function()
  local leave
  before_each(function() leave = folder.enter() end)
  after_each(function() leave() end)

  it("are removed with all files that hooks wrote into them: folders, hidden files, links", function()
    start(saves, "run", 3, "mkdir -p a/b empty; echo 1 > a/b/c; echo 2 > .hidden; ln -s a/b folder; "
      .. "ln -s a/b/c file; ln -s nowhere gone; ln -s . self")
    assert.same({"checkpoint_2"}, folder.names "run/checkpoints")
    local newest = "run/checkpoints/checkpoint_2/"
    local noted = require "accelhost".json.decode(files.read(newest .. "manifest.json")).files
    assert.same({link = "a/b"}, noted.folder)
    assert.same({link = "nowhere"}, noted.gone)
    assert.equal("a/b/c", noted.file.link)
    assert.equal(2, noted[".hidden"].size)
    assert.same(noted["a/b/c"].sha256, noted.file.sha256)
    assert.is_nil(noted["folder/c"])
    assert.equal("", start([[
      local accelhost = require "accelhost"
      local accelerator = accelhost.Accelerator()
      accelerator:prepare(accelhost.nn.Linear(2, 2))
      assert(accelerator:load_state(arg[1]))]], newest))
  end)

  it("of total_limit stay where they hold files of other programs, and each is reported once", function()
    start(saves, "run", 1)
    lfs.mkdir "elsewhere"
    write("elsewhere/thesis", "dear")
    local base = "run/checkpoints/checkpoint_"
    for i = 1, 6 do os.execute(("cp -r %s0 %s%d"):format(base, base, i)) end
    write(base .. "0/notes", "mine")
    lfs.mkdir(base .. "1/deep")
    write(base .. "1/deep/notes", "mine")
    assert(lfs.link("../../../elsewhere", base .. "2/linked", true))
    os.execute(("mv %s3 elsewhere/moved && ln -s ../../elsewhere/moved %s3"):format(base, base))
    os.execute(("mv %s4/model.safetensors elsewhere/ && ln -s ../../../elsewhere/model.safetensors %s4/"):format(base,
      base))
    os.remove(base .. "5/manifest.json")
    local said = left(start(saves, "run", 3))
    table.sort(said)
    assert.same({
      "checkpoint_0: 'notes' in it is no part of the checkpoint",
      "checkpoint_1: 'deep/notes' in it is no part of the checkpoint",
      "checkpoint_2: 'linked' in it is no part of the checkpoint",
      "checkpoint_3 is a link",
      "checkpoint_4: 'model.safetensors' in it is no part of the checkpoint",
      "checkpoint_5 is no checkpoint of this program: it has no readable manifest.json",
    }, said)
    assert.same({"checkpoint_0", "checkpoint_1", "checkpoint_2", "checkpoint_3", "checkpoint_4", "checkpoint_5",
      "checkpoint_9"}, folder.names "run/checkpoints")
    assert.is_true(exists(base .. "0/model.safetensors"))
    assert.same({"model.safetensors", "moved", "thesis"}, folder.names "elsewhere")
    assert.is_true(#folder.names "elsewhere/moved" > 4)
  end)

  it("of a Trainer stay where a link is in the way, and links are not followed", function()
    start(trains, "run", 2)
    os.execute "mkdir -p elsewhere/deep; echo dear > elsewhere/thesis; echo dear > elsewhere/deep/data"
    assert(lfs.link("../../elsewhere", "run/checkpoint-1/my_data", true))
    os.execute "mv run/checkpoint-2 elsewhere/ && ln -s ../elsewhere/checkpoint-2 run/checkpoint-2"
    local said = left(start(trains, "run", 5, "resume"))
    table.sort(said)
    assert.same({"checkpoint-1: 'my_data' in it is no part of the checkpoint", "checkpoint-2 is a link"}, said)
    assert.same({"checkpoint-1", "checkpoint-2", "checkpoint-4", "checkpoint-5"}, folder.names "run")
    assert.same({"checkpoint-2", "deep", "thesis"}, folder.names "elsewhere")
    assert.same({"data"}, folder.names "elsewhere/deep")
    assert.is_true(exists "elsewhere/checkpoint-2/trainer_state.json")
  end)

  it("of a Trainer are removed through a link to their folder, and whatever a killed run left hidden", function()
    lfs.mkdir "disk"
    assert(lfs.link("disk", "run", true))
    os.execute "mkdir -p disk/.removed-checkpoint-1/rest disk/.removed-checkpoint-2"
    assert.same({}, left(start(trains, "run", 4)))
    assert.same({".removed-checkpoint-1", ".removed-checkpoint-2", "checkpoint-3", "checkpoint-4"}, folder.names "disk")
    assert.equal("link", lfs.symlinkattributes("run", "mode"))
  end)

  it("that a killed process was removing are removed by the next save", function()
    start(saves, "run", 1)
    local host = require "accelhost._C".system.host_name()
    local hidden = ("run/checkpoints/.checkpoint_%d.saving-%s-1-0"):format(7, host)
    os.execute(("mv run/checkpoints/checkpoint_0 %s && rm %s/model.safetensors"):format(hidden, hidden))
    local kept = ("run/checkpoints/.checkpoint_%d.saving-%s-1-0"):format(8, host)
    os.execute(("cp -r %s %s && echo mine > %s/notes"):format(hidden, kept, kept))
    assert.same({kept:match "[^/]*$" .. ": 'notes' in it is no part of the checkpoint"}, left(start(saves, "run", 2)))
    assert.same({kept:match "[^/]*$", "checkpoint_1"}, folder.names "run/checkpoints")
    assert.is_true(exists(kept .. "/loaders.json"))
  end)
end)

describe("Two jobs in one project", function()
  it("end with whole checkpoints, or with an error that names the cause", function()
    local leave = folder.enter()
    local calls = {}
    for i = 1, 3 do calls[i] = function() return run.script(saves, {args = {"run", 12}}) end end
    local ended = 0
    for _, result in ipairs(run.at_once(calls)) do
      if result.code == 0 then
        ended = ended + 1
      else
        assert.is_truthy(result.stderr:find "another process has made 'run/checkpoints/checkpoint_%d+' since this save "
          and result.stderr:find("set a different project_dir or folder for each job", 1, true), result.output)
      end
    end
    assert.is_true(ended >= 1)
    for _, name in ipairs(folder.names "run/checkpoints") do
      assert.matches("^checkpoint_%d+$", name)
      start([[
        local accelhost = require "accelhost"
        local accelerator = accelhost.Accelerator()
        accelerator:prepare(accelhost.nn.Linear(2, 2))
        assert(accelerator:load_state(arg[1]))]], "run/checkpoints/" .. name)
    end
    leave()
  end)
end)
