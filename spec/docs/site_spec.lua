-- The documentation as `make docs` writes it.
local accelhost = require "accelhost"
local read = require("spec.support.files").read
local folder = require "spec.support.folder"
local run = require "spec.support.run"

describe("The documentation", function()
  local leave, page, names, root
  setup(function()
    root = io.popen("pwd"):read "*l"
    leave = folder.enter()
    local result = run.host({root .. "/scripts/docs/build.lua", "out"}, {timeout = 120})
    assert.equal("", result.output)
    run.succeeds(result)
    page = read "out/index.html"
    names = accelhost.json.decode(page:match '<script type="application/json" id="names">(.-)</script>')
  end)
  teardown(function() leave() end)

  it("is one file that asks for no other", function()
    for _, tag in ipairs {"<link", "<script src", "<img", "@import", "url("} do
      assert.is_nil(page:find(tag, 1, true), tag)
    end
  end)

  it("has a list of names to search, each with its place and its first sentence", function()
    local found = {}
    for _, row in ipairs(names) do
      found[row[1]] = row
      assert.truthy(page:find(('id="%s"'):format(row[2]:gsub("&", "&amp;")), 1, true), row[2])
    end
    for _, name in ipairs {"nn.Linear", "Tensor:relu_", "nn.functional.relu", "accelhost.clip", "Accelerator",
      "ACCELHOST_DATA", "Indexing and counting", "wandb", "torch.onnx"} do
      local row = found[name] or found["accelhost." .. name]
      assert.truthy(row, name)
      assert.is_string(row[3])
    end
    assert.truthy(#names > 600)
  end)

  it("finds names by other forms of their words and by a spelling that is nearly theirs", function()
    if os.execute "command -v node >/dev/null" ~= 0 then return pending "needs node, which runs the site's script" end
    local found = {}
    local result = run.program {"node", root .. "/spec/support/site_search.js", "out/index.html", "gradient clipping",
      "Linaer", "early stopping", "wandb", "learning rate warmup", "zzz qqq"}
    assert.equal(0, result.code, result.output)
    for line in result.stdout:gmatch "([^\n]*)\n" do found[#found + 1] = line end
    assert.truthy(found[1]:find("nn.utils.clip_grad_norm_", 1, true), found[1])
    assert.matches("^nn%.Linear ", found[2])
    assert.matches("^accelhost%.EarlyStoppingCallback ", found[3])
    assert.equal("wandb", found[4])
    assert.matches("^optim%.get_[%w_]+_schedule_with_warmup", found[5]) -- none has all words
    assert.equal("", found[6])
  end)

  it("leads nowhere that is not there, and no place is there twice", function()
    local places = {}
    for place in page:gmatch ' id="([^"]+)"' do
      assert.is_nil(places[place], place .. " is there twice")
      places[place] = true
    end
    for target in page:gmatch 'href="#([^"]+)"' do assert.truthy(places[target], "#" .. target) end
  end)

  it("has a Markdown page for each module and an index of all names", function()
    for _, name in ipairs {"nn", "nn.functional", "Tensor", "optim", "Accelerator", "guide-autograd", "commands"} do
      assert.matches("^# ", read("out/markdown/" .. name .. ".md"))
    end
    local index = read "out/markdown/index.md"
    assert.truthy(index:find("- [`nn.Linear`](nn.md#nnlinear) ", 1, true))
  end)

  it("has completion for bash, zsh and fish", function()
    local script = [[. out/completion/bash/accelhost
      try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _accelhost; echo "${COMPREPLY[*]}"; }
      try accelhost la; try accelhost launch --num_proc; try accelhost run --jit ""]]
    local result = run.program {"bash", "-c", script}
    assert.equal("", result.stderr)
    assert.matches("^launch\n%-%-num_processes\non off\n$", result.stdout)
    for shell, name in pairs {zsh = "_accelhost", fish = "accelhost.fish"} do
      local path = "out/completion/" .. shell .. "/" .. name
      assert.truthy(read(path):find("num_processes", 1, true), path)
      if os.execute("command -v " .. shell .. " >/dev/null") == 0 then
        assert.same({0, ""}, {run.program({shell, "-n", path}).code, run.program({shell, "-n", path}).output})
      end
    end
  end)

  it("has manual pages that groff reads without a warning", function()
    for _, name in ipairs {"accelhost", "accelhost-launch", "accelhost-config", "accelhost-test",
      "accelhost-estimate-memory", "accelhost-data", "accelhost-env", "accelhost-types", "accelhost-help"} do
      local text = read("out/man/" .. name .. ".1")
      assert.matches("^%.TH ", text)
      if os.execute "command -v groff >/dev/null" == 0 then
        local result = run.program {"groff", "-ww", "-man", "-Tascii", "out/man/" .. name .. ".1"}
        assert.equal("", result.stderr)
        run.succeeds(result)
      end
    end
    assert.matches("\\fB%-%-", (read("out/man/accelhost-launch.1"):gsub("\\%-", "-")))
  end)
end)
