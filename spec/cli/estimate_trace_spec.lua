local write = require("spec.support.files").write
local folder = require "spec.support.folder"
local run = require "spec.support.run"

local leave
local function trace(...)
  return run.host({"estimate-memory", "--trace", ...}, {timeout = 60})
end

local script = [[
local accelhost = require "accelhost"
local nn, F, optim = accelhost.nn, accelhost.nn.functional, accelhost.optim
local Net = nn.Module:extend "Net"
function Net:init()
  self.first, self.second = nn.Linear(512, 1024), nn.Linear(1024, 512)
end
function Net:forward(x)
  return self.second(self.first(x):tanh())
end
accelhost.set_num_threads(1)
local net = Net()
local optimizer = optim.AdamW(net:parameters())
local labels = accelhost.zeros({2048}, {dtype = "int64"})
for step = 1, tonumber(arg[1] or 9) do
  local x = accelhost.randn(2048, 512)
  F.cross_entropy(net(x), labels):backward()
  optimizer:step()
  optimizer:zero_grad()
  print("step", step)
  collectgarbage() -- the figures shall not depend on the moments at which the collector runs
end
]]

-- The bytes in MiB of the row that begins with a name.
local function row(text, name)
  local number, unit = text:match("\n  " .. name .. " +([%d.]+) (%a+) ")
  return number and tonumber(number) * ({B = 2 ^ -20, KiB = 2 ^ -10, MiB = 1})[unit]
end

describe("accelhost estimate-memory --trace", function()
  setup(function() leave = folder.enter() end)
  teardown(function() leave() end)

  it("prints the memory of a script's steps at the peak, by kind, by module and op, and by phase", function()
    local result = trace(write("train.lua", script))
    assert.same({0, ""}, {result.code, result.stderr})
    local text = result.stdout
    assert.matches("^step\t1\ntrain%.lua: 2 steps of AdamW, peak [%d.]+ MiB in step 2 %(%l+%)\n", text)
    -- The matrices have 2 MiB each, the biases 6 KiB; AdamW has two tensors and a number for each parameter.
    assert.near(4.006, row(text, "parameters"), 0.02)
    assert.near(8.012, row(text, "optimizer state"), 0.04)
    assert.matches("\n  Net tanh +8%.00 MiB", text)
    assert.near(4, row(text, "batches"), 0.01)
    assert.near(8, row(text, "activations"), 0.01)
    assert.near(2, row(text, "gradients"), 0.02) -- the second layer's, when the first one's begins
    local total, sum = row(text, "total"), 0
    for name in text:match "blocks\n(.-)\n  total":gmatch "  (%l[%l ]-%l)  +[%d.]" do sum = sum + row(text, name) end
    assert.near(total, sum, 0.05)
    for _, phase in ipairs {"set%-up", "loader", "forward", "backward", "optimizer"} do
      assert.truthy(row(text, phase) <= total, phase)
    end
  end)

  it("lists the largest allocations with op, dtype, shape, module and line", function()
    local text = trace("train.lua").stdout
    assert.matches("\n    8%.00 MiB  float32 %(2048, 1024%)  +tanh, activations\n +Net, train%.lua:8\n", text)
    assert.matches("\n    4%.00 MiB  float32 %(2048, 512%)  +randn, batches\n +train%.lua:15\n", text)
    assert.matches("\n    2%.00 MiB  float32 %(%d+, %d+%)  +zeros_like, optimizer state\n", text)
  end)

  it("has lines of at most 80 columns for them", function()
    for line in trace("train.lua").stdout:gmatch "[^\n]+" do assert.truthy(#line <= 80, line) end
  end)

  it("runs as many steps as --steps sets, and passes the other words to the script", function()
    local result = trace("--steps", 3, "train.lua", 5)
    assert.matches("step\t2\ntrain%.lua: 3 steps of AdamW", result.stdout)
    assert.is_nil(result.stdout:find "step\t3")
    assert.matches("The script ended after 1 step; %-%-steps 4 was requested%.\n",
      trace("--steps=4", "train.lua", 1).stdout)
  end)

  it("continues until each of several optimizers has done the steps", function()
    write("two.lua", [[
local accelhost = require "accelhost"
local a, b = accelhost.nn.Linear(2, 2), accelhost.nn.Linear(2, 2)
local first, second = accelhost.optim.SGD(a:parameters()), accelhost.optim.Adam(b:parameters())
for step = 1, 9 do
  b(a(accelhost.ones(2, 2))):sum():backward()
  first:step() second:step()
end]])
    assert.matches("two%.lua: 2 steps of SGD, Adam, peak", trace("two.lua").stdout)
  end)

  it("reports a script that makes no step, that fails, or options of the other kind", function()
    write("none.lua", "local accelhost = require 'accelhost' print(accelhost.ones(2))")
    write("exits.lua", "os.exit(0)")
    write("fails.lua", "local x = nil\nprint(x.y)")
    write("broken.lua", "local x =")
    for words, text in pairs {
      [{"none.lua"}] = "none.lua: expected a script that trains, got one that ended without a step of an optimizer",
      [{"exits.lua"}] = "exits.lua: expected a script that trains, got one that called os.exit without a step",
      [{"train.lua", 0}] = "train.lua: expected a script that trains, got one that ended without a step",
      [{"fails.lua"}] = "fails.lua:2: attempt to index local 'x' (a nil value)",
      [{"broken.lua"}] = "broken.lua:1: unexpected symbol near '<eof>'",
    } do
      local result = trace(unpack(words))
      assert.equal(1, result.code, text)
      assert.equal("accelhost estimate-memory: " .. text, result.stderr:sub(1, 27 + #text))
    end
    for words, text in pairs {
      [{"--trace", "--batch", "3", "train.lua"}] = "--trace: the script has model, optimizer and batches; expected " ..
        "no --batch, --dtypes, --optimizer or --model",
      [{"--steps", 3, "train.lua"}] = "--steps: expected --trace with it",
      [{"--trace", "--steps", 0, "train.lua"}] = "--steps ",
      [{"--trace", "absent.lua"}] = "cannot read 'absent.lua'",
    } do
      local result = run.host {"estimate-memory", unpack(words)}
      assert.equal(2, result.code, text)
      assert.equal("accelhost estimate-memory: " .. text, result.stderr:sub(1, 27 + #text))
    end
  end)
end)
