-- Every byte of a checkpoint is verified: cut, changed and missing files are found, named, and not used.
local accelhost = require "accelhost"
local files = require "spec.support.files"
local folder = require "spec.support.folder"
local run = require "spec.support.run"
local read, write = files.read, files.write
local nn, optim, data = accelhost.nn, accelhost.optim, accelhost.data

local leave, accelerator, held

local newest = "run/checkpoints/checkpoint_1/"

-- Both ends of a file, and places between them.
local function places(size)
  local list = {1, 2, size - 1, size}
  for i = 1, 12 do list[#list + 1] = math.floor(size * i / 13) end
  local fine, seen = {}, {}
  for _, place in ipairs(list) do
    if place >= 1 and place <= size and not seen[place] then
      seen[place] = true
      fine[#fine + 1] = place
    end
  end
  return fine
end

-- Load with standard error in a file; returns the result of load_state and the printed text.
local function load_quietly()
  local old, name = io.stderr, os.tmpname()
  local file = assert(io.open(name, "wb"))
  rawset(io, "stderr", file)
  local fine, result = pcall(accelerator.load_state, accelerator)
  rawset(io, "stderr", old)
  file:close()
  local said = read(name)
  os.remove(name)
  if not fine then error(result, 0) end
  return result, said
end

describe("A damaged checkpoint", function()
  setup(function()
    leave = folder.enter()
    accelhost.manual_seed(0)
    accelerator = accelhost.Accelerator {
      gradient_accumulation_steps = 2, project_config = {project_dir = "run", automatic_checkpoint_naming = true},
    }
    local net = nn.Linear(3, 2)
    local optimizer = optim.AdamW(net:parameters())
    held = {accelerator:prepare(net, optimizer, optim.lr_scheduler.StepLR(optimizer, 2),
      data.DataLoader(data.TensorDataset(accelhost.ones(6, 3)), {batch_size = 2, shuffle = true}))}
    accelerator:register_for_checkpointing(accelhost.Generator(3))
    for _ = 1, 3 do
      accelerator:accumulate(held[1])
      accelerator:backward(held[1](accelhost.ones(1, 3)):sum())
      held[2]:step()
    end
    accelerator:save_state()
    accelerator:save_state()
  end)
  teardown(function() leave() end)

  it("is found for every changed byte, and the one before is used, with a warning", function()
    local tried = 0
    assert.equal("run/checkpoints/checkpoint_1", load_quietly())
    for _, name in ipairs(folder.names(newest)) do
      local text = read(newest .. name)
      for i, place in ipairs(places(#text)) do
        local bit = 2 ^ (i % 8)
        local byte = text:byte(place)
        local other = byte % (2 * bit) >= bit and byte - bit or byte + bit
        write(newest .. name, text:sub(1, place - 1) .. string.char(other) .. text:sub(place + 1))
        local used, said = load_quietly()
        assert.equal("run/checkpoints/checkpoint_0", used, name .. " at " .. place)
        assert.is_truthy(said:find("load_state: 'run/checkpoints/checkpoint_1' cannot be used: " .. name
          .. " is damaged", 1, true), said)
        assert.is_truthy(said:find("; using 'run/checkpoints/checkpoint_0'\n", 1, true), said)
        tried = tried + 1
      end
      write(newest .. name, text)
    end
    assert.is_true(tried > 100, tried)
    assert.equal("run/checkpoints/checkpoint_1", load_quietly())
  end)

  it("is found when a file is cut, longer or missing", function()
    for _, name in ipairs(folder.names(newest)) do
      local text = read(newest .. name)
      for _, other in ipairs {"", text:sub(1, 1), text:sub(1, math.floor(#text / 2)), text:sub(1, -2), text:sub(2),
        text .. "\n"} do
        write(newest .. name, other)
        local used, said = load_quietly()
        assert.equal("run/checkpoints/checkpoint_0", used, name)
        assert.is_truthy(said:find(name, 1, true))
      end
      os.remove(newest .. name)
      local used, said = load_quietly()
      assert.equal("run/checkpoints/checkpoint_0", used)
      assert.is_truthy(said:find(name == "manifest.json" and "it has no manifest.json" or name .. " is missing", 1,
        true), said)
      write(newest .. name, text)
    end
  end)

  it("is an error where it was asked for by name, or nothing else is left", function()
    local text = read(newest .. "model.safetensors")
    write(newest .. "model.safetensors", text:sub(1, -2))
    assert.error_matches(function() accelerator:load_state(newest) end,
      "checkpoint_1/' cannot be used: model.safetensors has %d+ bytes, expected %d+ by the manifest")
    local manifest = read "run/checkpoints/checkpoint_0/manifest.json"
    os.remove "run/checkpoints/checkpoint_0/manifest.json"
    assert.error_matches(load_quietly,
      "load_state: 'run/checkpoints/checkpoint_1' cannot be used: .*; 'run/checkpoints/checkpoint_0' cannot be used")
    write("run/checkpoints/checkpoint_0/manifest.json", manifest)
    write(newest .. "model.safetensors", text)
  end)

  it("is not replaced where it contains another program's file", function()
    write("run/checkpoints/checkpoint_0/extra", "")
    assert.error_matches(function() accelerator:save_state "run/checkpoints/checkpoint_0" end,
      "'extra' in it is no part of the checkpoint")
    os.remove "run/checkpoints/checkpoint_0/extra"
  end)

  it("of several processes is found by each process that reads the file", function()
    local case = require("lfs").currentdir() .. "/case.lua"
    write(case, [[
      local accelhost = require "accelhost"
      local project = {project_dir = "both", automatic_checkpoint_naming = true}
      local accelerator = accelhost.Accelerator{project_config = project}
      local net = accelerator:prepare(accelhost.nn.Linear(3, 2))
      if arg[1] == "save" then accelerator:save_state() accelerator:save_state() end
      if arg[1] == "load" then print(accelerator:load_state()) end]])
    local function launch(mode) return run.host({"launch", "--num_processes", 3, case, mode}, {timeout = 60}) end
    assert.equal("", launch("save").output)
    for _, name in ipairs(folder.names "both/checkpoints/checkpoint_1") do
      local text = read("both/checkpoints/checkpoint_1/" .. name)
      write("both/checkpoints/checkpoint_1/" .. name, text:sub(1, -3) .. "xy")
      local result = launch "load"
      assert.same(run.everyone(3, "both/checkpoints/checkpoint_0\n"), run.by_rank(result.stdout), result.output)
      assert.is_truthy(result.stderr:find(name .. " is damaged", 1, true), result.output)
      write("both/checkpoints/checkpoint_1/" .. name, text)
    end
  end)
end)
