-- luacheck: ignore 512 (loops left by break)
local accelhost = require "accelhost"
local data = accelhost.data
local run = require "spec.support.run"

-- A file that keeps its text, and a clock that is moved by hand.
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

-- The lines of a terminal after a text with returns, newlines and steps upward, all characters one column wide.
local function screen_of(text)
  local lines, row, column = {""}, 1, 0
  text = text:gsub("[\194-\244][\128-\191]+", "#")
  text = text:gsub("\27%[(%d+)A", function(n) return ("\1"):rep(tonumber(n)) end)
  for character in text:gmatch "." do
    if character == "\r" then
      column = 0
    elseif character == "\n" then
      row, column = row + 1, 0
      lines[row] = lines[row] or ""
    elseif character == "\1" then
      row = row - 1
    else
      local line = lines[row] .. (" "):rep(column - #lines[row])
      lines[row] = line:sub(1, column) .. character .. line:sub(column + 2)
      column = column + 1
    end
  end
  return lines
end

local function loader_of(count)
  return data.DataLoader(data.TensorDataset(accelhost.arange(count), accelhost.arange(count):mul(10)), {batch_size = 2})
end

describe("progress", function()
  it("yields the loader's batches", function()
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
    assert.equal("\répocheé 1:   0% 0/4", out.text)
    bar:close()
  end)

  it("leaves out the bar, then a part of the description, then the speed, where the terminal is too narrow", function()
    for _, case in ipairs {
      {100, "a long description of it:  50%|█████████████▌             | 2/4 [00:02<00:02, 1.00 it/s, loss=0.25]"},
      {76, "a long description of it:  50% 2/4 [00:02<00:02, 1.00 it/s, loss=0.25]"},
      {66, "a long description…:  50% 2/4 [00:02<00:02, 1.00 it/s, loss=0.25]"},
      {50, "a long de…:  50% 2/4 [00:02<00:02, loss=0.25]"}, {20, "a long de…:  50% 2/"},
    } do
      local out = sink()
      local bar = accelhost.progress(nil, options_for(out, {terminal = true, total = 4, columns = case[1],
        desc = "a long description of it", leave = false}))
      bar:set_postfix {loss = 0.25}
      out.now = out.now + 2
      bar:update(2)
      local line = out.text:match "([^\r]*)$":gsub("%s+$", "")
      bar:close()
      assert.equal(case[2], line)
    end
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

  it("over a count may be advanced by hand", function()
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

  it("writes hours for times over an hour", function()
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

  it("counts the columns of wide characters, of marks and of bytes", function()
    local columns = require "accelhost.util.columns"
    assert.equal(3, columns.of "abc")
    assert.equal(4, columns.of "訓練")
    assert.equal(5, columns.of "épo e\204\129")
    assert.equal(2, columns.of "🚀")
    assert.equal("訓", columns.cut("訓練", 3))
    local out = sink()
    local bar = accelhost.progress(nil, options_for(out, {terminal = true, total = 4, columns = 60, desc = "訓練"}))
    assert.equal(59, columns.of((out.text:gsub("\r", ""))))
    bar:close()
  end)

  it("rounds the percentage", function()
    local out = sink()
    local bar = accelhost.progress(nil, options_for(out, {total = 31}))
    bar:update(13)
    assert.matches("^ 42%%|", out.text)
    bar:close()
  end)

  it("draws an inner loop's line below the outer one's, and leaves it above", function()
    local out = sink()
    for _ in accelhost.progress(2, options_for(out, {terminal = true, desc = "out", mininterval = 0})) do
      for _ in accelhost.progress(2, options_for(out, {terminal = true, desc = "in", mininterval = 0})) do end
      for _ in accelhost.progress(2, options_for(out, {terminal = true, desc = "gone", leave = false})) do end
    end
    assert.matches("\n\rin:  50%%|[^\r\n]+\27%[1A", out.text)
    local lines = screen_of(out.text)
    for i, line in ipairs(lines) do lines[i] = line:match "^(%a+: 100%%).*" or line:match "^ *$" and "" or line end
    assert.same({"in: 100%", "in: 100%", "out: 100%", ""}, lines)
  end)

  it("does not count a loop that was left by break as an outer one", function()
    local out = sink()
    for _ = 1, 3 do
      for i in accelhost.progress(9, options_for(out, {terminal = true, mininterval = 5})) do
        if i == 3 then break end
      end
    end
    for _ in accelhost.progress(1, options_for(out, {terminal = true})) do end
    assert.is_nil(out.text:find("\27", 1, true))
    assert.equal(3, select(2, out.text:gsub("2/9", "")))
  end)

  it("writes lines on a terminal of the type dumb, which moves no cursor", function()
    local code = [[for _ in require("accelhost").progress(3) do end]]
    local words = {"script", "-qec", run.quote(run.path) .. " -e " .. run.quote(code), "/dev/null"}
    assert.matches("\r", run.program(words, {env = {TERM = "xterm"}}).stdout:gsub("\r\n", "\n"))
    local shown = run.program(words, {env = {TERM = "dumb"}}).stdout:gsub("\r\n", "\n")
    assert.is_nil(shown:find "[\r\27]")
    assert.equal(3, select(2, shown:gsub("/3 %[", "")))
  end)

  it("lets print write above the bar of a terminal", function()
    local script = [[
      local a = require "accelhost"
      for i in a.progress(3, {mininterval = 0}) do
        if i == 2 then print("two", 2) end
      end
      print "end"
    ]]
    local path = os.tmpname()
    local file = assert(io.open(path, "w"))
    file:write(script)
    file:close()
    local result = run.program({"script", "-qec", run.quote(run.path) .. " " .. path, "/dev/null"})
    os.remove(path)
    assert.matches("\r +\rtwo\t2\r\n\r 33%%|", result.stdout)
    assert.matches("3/3 [^\n]+\nend\r\n$", result.stdout)
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

  it("refuses values that are not iterable", function()
    assert.error_matches(function() accelhost.progress({1, 2}) end,
      "expected a loader, an iterator function or a count")
    assert.error_matches(function() accelhost.progress("abc") end, "got 'abc'")
    assert.error_matches(function() accelhost.progress(3, {describe = "x"}) end, "unknown option 'describe'")
  end)
end)
