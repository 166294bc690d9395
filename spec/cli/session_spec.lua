-- The session in the guide of the prompt is a real one: typed again, it prints the same.
local run = require "spec.support.run"
local terminal = require "spec.support.terminal"

local function recorded()
  local file = assert(io.open "examples/guides/prompt.md")
  local text = file:read "*a"
  file:close()
  return assert(text:match "\n```\n%$ accelhost\n(.-)```\n")
end

-- Type a session's lines: those after a prompt, up to the line's end; ^C is a key.
local function play(at, session)
  at:wait "%[1%]> "
  for line in session:gmatch "([^\n]*)\n" do
    local typed = line:match "^%[%d+%]> (.*)$" or line:match "^ +%.%. (.*)$"
    if line == "^C" then
      os.execute "sleep 0.5"
      at:type "\3"
    elseif typed then
      at:type(typed .. "\n")
      at:wait "\n"
    end
    -- The next prompt is printed when this line has no more output.
    if typed and not typed:find "^while true" or line == "^C" then at:wait "[%]%.][>%.] $" end
  end
end

describe("the guide's session at the prompt", function()
  it("is a terminal's text", function()
    local session = recorded()
    local at = terminal.open({run.path}, {env = {TERM = "dumb"}})
    local fine, message = pcall(play, at, session)
    local shown = at:shown():gsub("%[%d+%]> $", "")
    at:close()
    assert.equal(session, shown)
    assert.is_true(fine, message)
  end)
end)
