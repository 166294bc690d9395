-- The session of the guide to experiments is a prompt's text.
local run = require "spec.support.run"

local file = assert(io.open "examples/guides/experiments.md")
local guide = file:read "*a"
file:close()

-- Return the typed lines and the output of the blocks that hold a prompt.
local function session()
  local typed, shown, block = {}, {}, false
  for line in guide:gmatch "[^\n]+" do
    if line:find "^```" then
      block = not block and line
    elseif block == "```" then
      local text = line:match "^%[%d+%]> (.*)$"
      if text then typed[#typed + 1] = text
      elseif not line:find "^%$ " then shown[#shown + 1] = line
      end
    end
  end
  return table.concat(typed, "\n") .. "\n", table.concat(shown, "\n") .. "\n"
end

describe("the guide to experiments", function()
  it("shows the text of a prompt in two processes", function()
    local typed, shown = session()
    local result = run.host({"repl", "--num_processes", "2"}, {stdin = typed})
    assert.equal(shown, result.stdout)
  end)
end)
