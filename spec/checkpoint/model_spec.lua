-- save_model and load_checkpoint_in_model: weights in the layout of Hugging Face; and accelerator:save.
local accelhost = require "accelhost"
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local nn = accelhost.nn

local leave, accelerator
local fixtures = require("lfs").currentdir() .. "/spec/fixtures/files/"

local function model()
  return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 5))
end

local function same(a, b)
  local other = b:state_dict()
  for name, tensor in pairs(a:state_dict()) do assert.is_true(tensor:equal(other[name]), name) end
end

local function index_of(path) return accelhost.json.decode(assert(io.open(path)):read "*a") end

describe("save_model", function()
  before_each(function()
    leave = folder.enter()
    accelerator = accelhost.Accelerator()
  end)
  after_each(function() leave() end)

  it("writes one file, which load_checkpoint_in_model reads as file and as folder", function()
    local net = accelerator:prepare(model())
    accelerator:save_model(net, "out/weights")
    assert.same({"model.safetensors"}, folder.names "out/weights")
    for _, path in ipairs {"out/weights", "out/weights/model.safetensors"} do
      local other = model()
      assert.same({missing_keys = {}, unexpected_keys = {}}, accelhost.load_checkpoint_in_model(other, path))
      same(net, other)
    end
  end)

  -- Accelerate's test_save_sharded_model.
  it("cuts at 100 bytes into shards and an index, in Hugging Face's way", function()
    local net = accelerator:prepare(model())
    accelerator:save_model(net, "out", {max_shard_size = 100})
    local names = folder.names "out"
    local index = index_of "out/model.safetensors.index.json"
    local files = {}
    for name, tensor in pairs(net:state_dict()) do
      local file = index.weight_map[name]
      files[file] = (files[file] or 0) + tensor:numel() * tensor:element_size()
      assert.is_true(accelhost.load("out/" .. file)[name]:equal(tensor))
    end
    local total = 0
    for file, size in pairs(files) do
      assert.is_true(size <= 100, file)
      total = total + size
    end
    assert.equal(total, index.metadata.total_size)
    assert.same({
      "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors",
      "model.safetensors.index.json",
    }, names)
    for _, path in ipairs {"out", "out/model.safetensors.index.json"} do
      local other = model()
      accelhost.load_checkpoint_in_model(other, path, {strict = true})
      same(net, other)
    end
  end)

  it("removes the shards of an earlier save, and nothing else", function()
    local net = accelerator:prepare(model())
    assert(io.open("config.json", "w")):close()
    accelerator:save_model(net, ".", {max_shard_size = 100})
    accelerator:save_model(net, ".", {max_shard_size = 200})
    assert.same({"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
      "model.safetensors.index.json"}, folder.names ".")
    accelerator:save_model(net, ".")
    assert.same({"config.json", "model.safetensors"}, folder.names ".")
    accelerator:save_model(net, ".", {max_shard_size = "0.1KB"})
    assert.same({"config.json", "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
      "model-00003-of-00003.safetensors", "model.safetensors.index.json"}, folder.names ".")
  end)

  it("leaves a folder or a link of such a name, and reports it", function()
    local lfs = require "lfs"
    local net = accelerator:prepare(model())
    lfs.mkdir "model.safetensors"
    assert(io.open("model.safetensors/notes", "w")):close()
    assert.error_matches(function() accelerator:save_model(net, ".", {max_shard_size = 200}) end,
      "not removed: './model.safetensors' is a folder: it would be loaded in place of the new files; move it to")
    assert.same({"notes"}, folder.names "model.safetensors")
    assert(os.rename("model.safetensors", "base"))
    assert(lfs.link("base/notes", "model.safetensors", true))
    assert.error_matches(function() accelerator:save_model(net, ".", {max_shard_size = 200}) end,
      "not removed: './model.safetensors' is a link: it would be loaded")
    assert.equal("link", lfs.symlinkattributes("model.safetensors", "mode"))
    assert.same({"notes"}, folder.names "base")
  end)

  it("writes tied weights once and restores them under each name", function()
    local net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    net[2].weight = net[1].weight
    accelerator:save_model(net, "out", {max_shard_size = 40})
    assert.is_nil(index_of("out/model.safetensors.index.json").weight_map["1.weight"])
    local other = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    accelhost.load_checkpoint_in_model(other, "out", {strict = true})
    assert.is_true(other[2].weight:equal(net[1].weight))
    -- Written by other programs, without a record of ties: the model has it.
    accelhost.save({["0.weight"] = net[1].weight, ["0.bias"] = net[1].bias, ["1.bias"] = net[2].bias},
      "plain.safetensors")
    local tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[2].weight = tied[1].weight
    assert.same({missing_keys = {}, unexpected_keys = {}},
      accelhost.load_checkpoint_in_model(tied, "plain.safetensors", {strict = true}))
  end)

  it("is read by its names where safetensors' own save_model has written tied weights", function()
    local net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    accelhost.load_checkpoint_in_model(net, fixtures .. "tied.safetensors", {strict = true})
    local ramp = accelhost.arange(9):reshape(3, 3) / 4
    assert.is_true(net[1].weight:equal(ramp) and net[2].weight:equal(ramp))
    assert.same({0, 0.25, 0.5}, net[2].bias:tolist())
  end)

  it("reports the keys that only the files or only the model have", function()
    accelhost.save({weight = accelhost.ones(2, 2), other = accelhost.ones(1)}, "a.safetensors")
    local net = nn.Linear(2, 2)
    assert.same({missing_keys = {"bias"}, unexpected_keys = {"other"}},
      accelhost.load_checkpoint_in_model(net, "a.safetensors"))
    assert.same({1, 1, 1, 1}, net.weight:reshape(-1):tolist())
    assert.error_matches(function() accelhost.load_checkpoint_in_model(net, "a.safetensors", {strict = true}) end,
      'Missing key%(s%) in state_dict: "bias"')
    assert.error_matches(function() accelhost.load_checkpoint_in_model(nn.Linear(3, 2), "a.safetensors") end,
      "size mismatch for weight")
  end)

  it("refuses sizes, paths and indexes that make no sense", function()
    local net = nn.Linear(2, 2)
    for _, size in ipairs {0, 1.5, "10", "tenGB", "10XB"} do
      assert.error_matches(function() accelerator:save_model(net, "out", {max_shard_size = size}) end,
        'save_model: max_shard_size: expected a number of bytes or a text such as "10GB"')
    end
    assert(io.open("file", "w")):close()
    assert.error_matches(function() accelerator:save_model(net, "file") end, "save_model: 'file' is a file")
    assert.error_matches(function() accelhost.load_checkpoint_in_model(net, "none") end,
      "load_checkpoint_in_model: 'none': there is no such file or folder")
    assert.error_matches(function() accelhost.load_checkpoint_in_model(net, ".") end,
      "'.' has neither model.safetensors nor pytorch_model.bin nor an index")
    for text, reason in pairs {
      ['{"weight_map": {"weight": "../a.safetensors"}}'] = "has '../a.safetensors' for weight, which is no file",
      ['{"weight_map": {"weight": 3}}'] = "has number 3 for weight",
      ["[]"] = "is no index of weights",
      ["{"] = "is no index of weights",
    } do
      local file = assert(io.open("x.index.json", "w"))
      file:write(text)
      file:close()
      assert.error_matches(function() accelhost.load_checkpoint_in_model(net, ".") end, reason)
    end
  end)

  it("is done by one process of many, as is accelerator:save", function()
    local result = run.host({"launch", "--num_processes", 2, "-e", [[
      local accelhost = require "accelhost"
      local accelerator = accelhost.Accelerator()
      local net = accelerator:prepare(accelhost.nn.Linear(2, 2))
      accelerator:save_model(net, "out")
      accelerator:save({rank = accelerator.process_index}, "saved")
      if accelerator.is_main_process then accelerator:save_model(net, "alone") end
      accelerator:wait_for_everyone()
      print(accelhost.load("saved").rank)]]}, {timeout = 60})
    assert.same(run.everyone(2, "0\n"), run.by_rank(result.stdout), result.output)
    assert.same({"alone", "out", "saved"}, folder.names ".")
  end)
end)
