-- Seeds, values of any form and batch sizes that fit, in one process.
local accelhost = require "accelhost"
local run = require "spec.support.run"
local utils = accelhost.utils

describe("find_executable_batch_size", function()
  local function running_out() error "conv2d: out of memory" end

  it("tries Accelerate's sizes", function()
    local sizes = {}
    local train = utils.find_executable_batch_size(function(size)
      sizes[#sizes + 1] = size
      if size ~= 8 then running_out() end
    end)
    train()
    assert.same({128, 115, 103, 92, 82, 73, 65, 58, 52, 46, 41, 36, 32, 28, 25, 22, 19, 17, 15, 13, 11, 9, 8}, sizes)
    -- Where one call ended the next begins.
    sizes = {}
    train()
    assert.same({8}, sizes)
  end)

  it("passes arguments and results on, nils included", function()
    local train = accelhost.find_executable_batch_size(function(size, a, b)
      if size > 20 then running_out() end
      return size, a, b, nil
    end, {starting_batch_size = 22})
    assert.same({n = 4, 19, "a", "b"}, (function(...) return {n = select("#", ...), ...} end)(train("a", "b")))
  end)

  it("applies a reduce function, even without a smaller size", function()
    local sizes = {}
    local train = utils.find_executable_batch_size(function(size)
      sizes[#sizes + 1] = size
      if size > 10 then running_out() end
    end, {starting_batch_size = 64, reduce_batch_size_fn = function(size) return size / 2 end})
    train()
    assert.same({64, 32, 16, 8}, sizes)
    local stuck = utils.find_executable_batch_size(function(_) running_out() end,
      {reduce_batch_size_fn = function(size) return size end})
    assert.error_matches(stuck, "reduce_batch_size_fn: expected an integer from 0 to 127, got number 128")
  end)

  it("keeps the global batch by longer windows where it is asked to", function()
    local accelerator = accelhost.Accelerator {gradient_accumulation_steps = 2}
    local seen = {}
    utils.find_executable_batch_size(function(size)
      seen[#seen + 1] = {size, accelerator.gradient_accumulation_steps}
      if size > 15 then running_out() end
    end, {starting_batch_size = 60, accelerator = accelerator,
      reduce_batch_size_fn = function(size) return math.floor(size / 2) end})()
    assert.same({{60, 2}, {30, 4}, {15, 8}}, seen)
  end)

  it("passes other errors on and stops at 0", function()
    assert.error_matches(utils.find_executable_batch_size(function(_) error "Oops" end), "Oops")
    assert.error_matches(utils.find_executable_batch_size(function(_) end, {starting_batch_size = 0}),
      "no batch size fits into memory")
    assert.error_matches(utils.find_executable_batch_size(function(_) running_out() end), "the size has reached 0")
  end)

  it("notices that the batch size was given", function()
    local train = utils.find_executable_batch_size(function(_, a) return a end)
    assert.error_matches(function() train(128, "a") end,
      "the function has 2 parameters, including the batch size; it was called with 2 more")
  end)

  it("finds the size that fits into a memory limit", function()
    if run.no_memory_limit then return pending(run.no_memory_limit) end
    local result = run.host({"launch", "--max_memory", "300M", "-e", [[
      local accelhost = require "accelhost"
      local tried = 0
      accelhost.find_executable_batch_size(function(size)
        tried = tried + 1
        local kept = {}
        for i = 1, size do kept[i] = accelhost.ones(1024, 1024) end
        print("fits", size <= 70, tried > 1)
      end, {reduce_batch_size_fn = function(size) return math.floor(size / 2) end})()]]}, {timeout = 60})
    run.prints("fits\ttrue\ttrue\n", result)
  end)
end)

describe("accelhost.utils", function()
  local a, b = accelhost.tensor {1, 2, 3}, accelhost.ones(3, 2)

  it("seeds the generators", function()
    accelhost.set_seed(5)
    local first, number = accelhost.rand(3):tolist(), math.random()
    accelhost.set_seed(5, {device_specific = true, deterministic = true})
    assert.same({first, number}, {accelhost.rand(3):tolist(), math.random()})
    assert.equal(5, accelhost.initial_seed())
    assert.error_matches(function() accelhost.set_seed(-1) end, "set_seed: seed: expected an integer of at least 0")
  end)

  it("knows values of any form", function()
    local value = {x = a, deep = {b, name = "n"}}
    assert.equal(3, utils.find_batch_size(value))
    assert.is_nil(utils.find_batch_size {1, "a"})
    assert.same({1, 2}, utils.slice_tensors({x = a}, 0, 2).x:tolist())
    assert.same({3}, utils.slice_tensors({a}, 2, 9)[1]:tolist())
    assert.same({6}, utils.concatenate({{x = a}, {x = a}}).x:shape())
    assert.same({3, 4}, utils.concatenate({b, b}, 1):shape())
    assert.same({shape = {3, 2}, dtype = "float32"}, utils.get_data_structure({b})[1])
    local blank = utils.initialize_tensors(utils.get_data_structure {x = a:half(), y = {b}})
    assert.same({{3}, "float16", {3, 2}}, {blank.x:shape(), blank.x.dtype, blank.y[1]:shape()})
    assert.same({x = {1, 2, 3}, n = 4}, utils.listify {x = a, n = 4})
    assert.same({"float32", "int64"}, {utils.convert_to_fp32({a:to "bfloat16"})[1].dtype,
      utils.convert_to_fp32(a:long()).dtype})
    local moved = utils.send_to_device(value, "cpu", {skip_keys = "deep"})
    assert.equal(value.deep, moved.deep)
    assert.same({2, 4, 6}, utils.recursively_apply(function(t) return t * 2 end, {a, "kept"})[1]:tolist())
  end)

  it("reports mismatched arguments", function()
    assert.error_matches(function() utils.concatenate {a, {a}} end, "item 2 is a table, item 1 a tensor")
    assert.error_matches(function() utils.concatenate {{x = a}, {y = a}} end, "item 1 has 'x', item 2 has not")
    assert.error_matches(function() utils.concatenate {} end, "at least one value")
    assert.error_matches(function() utils.slice_tensors({1}, 0) end, "expected tensors and tables .* got number 1")
    assert.error_matches(function() utils.recursively_apply(print, {1}, true) end, "expected tensors and tables")
    assert.error_matches(function() utils.broadcast(a, 1) end, "from_process: expected 0 to 0, got 1")
    assert.error_matches(function() utils.reduce(a, "none") end, "reduce: expected sum, mean, max, min or product")
  end)

  it("releases memory", function()
    local x, y = utils.release_memory(a, b)
    assert.is_nil(x)
    assert.is_nil(y)
    assert.equal(2, select("#", utils.release_memory(1, 2)))
    assert.is_true(utils.should_reduce_batch_size "not enough memory")
    assert.is_false(utils.should_reduce_batch_size "other")
  end)
end)

describe("LocalSGD", function()
  it("does nothing in one process and reports the expected arguments", function()
    local accelerator, model = accelhost.Accelerator(), accelhost.nn.Linear(1, 1)
    local local_sgd = accelhost.LocalSGD(accelerator, model, 2)
    assert.equal("x", local_sgd:run(function()
      local_sgd:step()
      return "x"
    end))
    assert.equal(1, local_sgd.num_steps)
    assert.equal(8, accelhost.LocalSGD{accelerator = accelerator, model = model, local_sgd_steps = 8}.local_sgd_steps)
    assert.equal(8, accelhost.LocalSGD(accelerator, {model = model, local_sgd_steps = 8}).local_sgd_steps)
    assert.error_matches(function() accelhost.LocalSGD{accelerator = accelerator, model = model} end,
      "LocalSGD: 'local_sgd_steps' is missing")
    assert.error_matches(function() accelhost.LocalSGD(model, model, 2) end, "accelerator: expected an Accelerator")
    assert.error_matches(function() accelhost.LocalSGD(accelerator, model, 0) end, "local_sgd_steps: .* at least 1")
  end)
end)

describe("utils.makedirs", function()
  local folder = require "spec.support.folder"

  it("makes a folder with its parents, and refuses one that is there unless exist_ok", function()
    folder.with(function(path)
      local name = path .. "/a/b/c"
      accelhost.utils.makedirs(name)
      assert(io.open(name .. "/file", "w")):close()
      assert.error_matches(function() accelhost.utils.makedirs(name) end, "makedirs: '.*/a/b/c' exists already")
      accelhost.utils.makedirs(name, {exist_ok = true})
      assert.error_matches(function() accelhost.utils.makedirs(name .. "/file/d", true) end,
        "makedirs: .*Not a directory")
      assert.error_matches(function() accelhost.utils.makedirs(name .. "/file", true) end, "makedirs: ")
    end)
  end)
end)
