-- luacheck: ignore 512 (loops left by break)
local accelhost = require "accelhost"
local data = accelhost.data

-- A file that keeps what is written, and a clock that is moved by hand.
local function sink()
  local self = {text = "", now = 100}
  function self.write(_, ...)
    for i = 1, select("#", ...) do self.text = self.text .. (select(i, ...)) end
    return self
  end
  function self.flush() end
  function self.clock() return self.now end
  return self
end

local function options_for(out, options)
  options.file, options.clock = out, out.clock
  return options
end

local function loader_of(count)
  return data.DataLoader(data.TensorDataset(accelhost.arange(count), accelhost.arange(count):mul(10)), {batch_size = 2})
end

describe("progress", function()
  it("yields what the loader yields", function()
    local out, rows = sink(), {}
    for x, y in accelhost.progress(loader_of(5), options_for(out, {})) do rows[#rows + 1] = {x:tolist(), y:tolist()} end
    assert.same({{{0, 1}, {0, 10}}, {{2, 3}, {20, 30}}, {{4}, {40}}}, rows)
  end)

  it("writes a line per tenth when piped", function()
    local out = sink()
    for _ in accelhost.progress(20, options_for(out, {desc = "epoch 1"})) do out.now = out.now + 0.5 end
    local lines = {}
    for line in out.text:gmatch("[^\n]+") do lines[#lines + 1] = line end
    assert.equal(10, #lines)
    assert.equal("epoch 1:  10%|█         | 2/20 [00:01<00:09, 2.00 it/s]", lines[1])
    assert.equal("epoch 1:  50%|█████     | 10/20 [00:05<00:05, 2.00 it/s]", lines[5])
    assert.equal("epoch 1: 100%|██████████| 20/20 [00:10, 2.00 it/s]", lines[10])
    assert.is_nil(out.text:find("\r", 1, true))
  end)

  it("redraws one line on a terminal, no more often than mininterval", function()
    local out = sink()
    for _ in accelhost.progress(8, options_for(out, {terminal = true, mininterval = 1})) do out.now = out.now + 0.5 end
    local draws = select(2, out.text:gsub("\r", ""))
    assert.equal(1 + 4 + 1, draws)
    assert.matches("100%%|██████████| 8/8 %[00:04, 2.00 it/s%] *\n$", out.text)
    assert.equal(1, select(2, out.text:gsub("\n", "")))
  end)

  it("covers a longer line with a shorter one", function()
    local out = sink()
    local bar = accelhost.progress(nil, options_for(out, {terminal = true, total = 4, mininterval = 0}))
    bar:set_postfix("a long remark")
    bar:update()
    bar:set_postfix("")
    out.text = ""
    bar:update()
    assert.matches("%]" .. (" "):rep(#", a long remark") .. "$", out.text)
    bar:close()
  end)

  it("fills the columns of the terminal", function()
    local out = sink()
    local bar = accelhost.progress(nil, options_for(out, {terminal = true, total = 4, columns = 60}))
    local line = out.text:gsub("\r", "")
    assert.equal(59, #line)
    out.now = out.now + 1
    bar:update(3)
    line = out.text:match("([^\r]*)$"):gsub("[\128-\191]", "")
    assert.equal(59, #line)
    bar:close()
  end)

  it("cuts a line that the terminal is too narrow for", function()
    local out = sink()
    local options = options_for(out, {terminal = true, total = 4, columns = 20, desc = "épocheé 1"})
    local bar = accelhost.progress(nil, options)
    assert.equal("\répocheé 1:   0%|| 0", out.text)
    bar:close()
  end)

  it("shows values behind the speed, sorted by name", function()
    local out = sink()
    local bar = accelhost.progress(nil, options_for(out, {total = 2}))
    bar:set_postfix {loss = accelhost.tensor(0.12345), lr = 1e-4, epoch = 3, phase = "warm"}
    out.now = out.now + 4
    bar:update(2)
    assert.matches("%[00:04, 2.00 s/it, epoch=3, loss=0.123, lr=0.0001, phase=warm%]\n$", out.text)
    assert.error_matches(function() bar:set_postfix(3) end,
      "set_postfix: values: expected a table or a string, got number 3")
  end)

  it("over a count may be told its steps by hand", function()
    local out = sink()
    local bar = accelhost.progress(4, options_for(out, {}))
    bar:update(3)
    bar:update()
    assert.matches("4/4", out.text)
    bar:close()
  end)

  it("counts without a total", function()
    local out = sink()
    local left = 3
    for _ in accelhost.progress(function()
      left = left - 1
      out.now = out.now + 1
      if left >= 0 then return left end
    end, options_for(out, {unit = "batch"})) do end
    assert.equal("3 batch [00:04, 1.33 s/batch]\n", out.text)
  end)

  it("writes hours when it takes hours", function()
    local out = sink()
    local bar = accelhost.progress(nil, options_for(out, {total = 10}))
    out.now = out.now + 3 * 3600 + 62
    bar:update(1)
    assert.matches("%[3:01:02<27:09:18, 10862 s/it%]", out.text)
  end)

  it("prints above the bar", function()
    local out = sink()
    local bar = accelhost.progress(nil, options_for(out, {terminal = true, total = 2}))
    out.text = ""
    bar:write("saved")
    assert.matches("^\r +\rsaved\n\r  0%%|", out.text)
    bar:close()
  end)

  it("removes its line with leave = false", function()
    local out = sink()
    for _ in accelhost.progress(2, options_for(out, {terminal = true, leave = false})) do end
    assert.matches("\r +\r$", out.text)
    assert.is_nil(out.text:find("\n", 1, true))
  end)

  it("begins again on a new line after break", function()
    local out = sink()
    local bar = accelhost.progress(3, options_for(out, {terminal = true}))
    for _ in bar do break end
    for _ in bar do end
    assert.equal(2, select(2, out.text:gsub("\n", "")))
    assert.matches("3/3", out.text)
  end)

  it("is silent when disabled", function()
    local out, steps = sink(), 0
    local bar = accelhost.progress(3, options_for(out, {disable = true, terminal = true}))
    for _ in bar do
      steps = steps + 1
      bar:set_postfix {n = steps}
    end
    assert.equal(3, steps)
    assert.equal("", out.text)
  end)

  it("refuses what it cannot iterate over", function()
    assert.error_matches(function() accelhost.progress({1, 2}) end,
      "expected a loader, an iterator function or a count")
    assert.error_matches(function() accelhost.progress("abc") end, "got 'abc'")
    assert.error_matches(function() accelhost.progress(3, {describe = "x"}) end, "unknown option 'describe'")
  end)
end)
