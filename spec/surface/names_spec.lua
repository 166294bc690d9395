-- Names that a script reads and calls by mistake.
local accelhost = require "accelhost"
local check = require "spec.support.check"
local nn, F, optim, data = accelhost.nn, accelhost.nn.functional, accelhost.optim, accelhost.data

describe("An unknown name", function()
  local wrong = {
    {"accelhost", accelhost, "zeross", "zeros"}, {"nn", nn, "Linaer", "Linear"},
    {"nn.functional", F, "crossentropy", "cross_entropy"}, {"optim", optim, "AdamV", "Adam"},
    {"data", data, "Dataloader", "DataLoader"}, {"nn.init", nn.init, "kaiming_norma_", "kaiming_normal_"},
    {"nn.utils", nn.utils, "clip_grad_nrm_", "clip_grad_norm_"},
    {"autograd", accelhost.autograd, "gradchekc", "gradcheck"},
    {"optim.lr_scheduler", optim.lr_scheduler, "StepLr", "StepLR"},
    {"data.transforms", data.transforms, "ToTenser", "ToTensor"},
    {"accelhost.models", accelhost.models, "BertMdel", "BertModel"},
  }
  for _, row in ipairs(wrong) do
    local title, object, name, near = unpack(row)
    it("of " .. title .. " is an error that suggests the nearest one", function()
      local text = ("%s has no '%s' (did you mean '%s'?)"):format(title, name, near)
      check.raises(text, function() return object[name] end)
    end)
  end

  it("that is near to none is an error too", function()
    local message = check.raises("accelhost has no 'quaternion'", function() return accelhost.quaternion end)
    assert.is_nil(message:find("did you mean", 1, true))
  end)

  it("that PyTorch has suggests the equivalent", function()
    check.raises("nn has no Buffer: module:register_buffer", function() return nn.Buffer end)
    check.raises("accelhost has no version: accelhost.__version__", function() return accelhost.version end)
    check.raises("nn has no DataParallel: accelerator:prepare", function() return nn.DataParallel end)
  end)

  it("does not keep known ones from being completed", function()
    local names = getmetatable(nn).names()
    local found = {}
    for _, name in ipairs(names) do found[name] = true end
    assert.truthy(found.Linear and found.Module and found.functional)
  end)

  it("is looked for in a list that has each known name once, used or not", function()
    for _, used in ipairs {"add", "norm", "Accelerator"} do assert.truthy(accelhost[used]) end
    local found = {}
    for _, name in ipairs(getmetatable(accelhost).names()) do
      assert.is_nil(found[name], name .. " is listed twice")
      found[name] = true
    end
    assert.truthy(found.add and found.norm and found.accelerator)
  end)
end)

describe("The dtypes", function()
  it("have names in accelhost", function()
    assert.equal("int64", accelhost.zeros(2, {dtype = accelhost.int64}).dtype)
    assert.equal("float64", accelhost.zeros(2):to(accelhost.double).dtype)
    for _, name in ipairs {"float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"} do
      assert.equal(name, accelhost[name])
    end
  end)
end)

describe("A class", function()
  local Net = nn.Module:extend "Net"
  function Net:forward(x) return x end

  it("refuses more arguments than its init accepts", function()
    check.raises("Net: expected at most 0 arguments, got 1 (Net(...) makes a new one; to call one that exists, call "
      .. "the object)", function() local _ = Net(accelhost.zeros(2)) end)
    local Set = data.Dataset:extend "Set"
    function Set:init(size) self.size = size end
    check.raises("Set: expected at most 1 argument, got 2", function() local _ = Set(1, 2) end)
  end)

  it("accepts absent ones, and any number when its init does", function()
    assert.equal("Net", Net(nil, nil)._name)
    local Many = nn.Module:extend "Many"
    function Many:init(...) self.count = select("#", ...) end
    assert.equal(3, Many(1, 2, 3).count)
    assert.equal("Identity", nn.Identity(1, {a = 2})._name)
  end)
end)

describe("A method called with a dot", function()
  it("reports that a colon is needed", function()
    local net, loader = nn.Linear(2, 2), data.DataLoader(data.SyntheticDigits {size = 2})
    for name, call in pairs {
      parameters = function() return net.parameters() end, train = function() return net.train(true) end,
      state_dict = function() return net.state_dict() end, len = function() return loader.len() end,
      set_epoch = function() return loader.set_epoch(3) end,
    } do
      local message = check.raises(name .. ": expected a ", call)
      assert.truthy(message:find("with a colon", 1, true), message)
    end
  end)
end)

describe("Data sets, loaders and samplers", function()
  local set = data.TensorDataset(accelhost.zeros(10, 2), accelhost.zeros(10))
  local Own = data.Dataset:extend "Own"
  function Own:len() return 7 end
  function Own:get(i) return i end

  it("have a length", function()
    assert.equal(10, #set)
    assert.equal(7, #Own())
    assert.equal(4, #data.DataLoader(set, {batch_size = 3}))
    assert.equal(2, #data.Subset(set, {0, 1}))
    assert.equal(10, #data.SequentialSampler(set))
    assert.equal(5, #data.BatchSampler(data.SequentialSampler(10), 2))
  end)

  it("are no tables to walk by ipairs or pairs", function()
    for _, object in ipairs {set, data.DataLoader(set), Own(), data.RandomSampler(set)} do
      assert.is_false(pcall(function() for _ in ipairs(object) do error "walked" end end))
      local fine, message = pcall(function() for _ in pairs(object) do error "walked" end end)
      assert.is_false(fine)
      assert.is_nil(message:find("walked", 1, true))
    end
  end)

  it("keep fields that are assigned", function()
    local own = Own()
    own.offset = 3
    assert.equal(3, own.offset)
    assert.is_nil(own.absent)
  end)
end)
