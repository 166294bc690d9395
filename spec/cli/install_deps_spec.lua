local function output_of(words)
  local pipe = io.popen("scripts/install-deps.sh " .. words .. " 2>&1; echo code $?")
  local text = pipe:read "*a"
  pipe:close()
  return text:match "^(.-)code (%d+)\n$"
end

describe("scripts/install-deps.sh", function()
  it("prints each package manager's names of the libraries", function()
    for manager, names in pairs {
      apt = "libluajit-5.1-dev libopenblas-openmp-dev libdnnl-dev",
      dnf = "luajit-devel openblas-devel onednn-devel",
      pacman = "luajit openblas onednn",
      apk = "luajit-dev openblas-dev",
    } do
      local text, code = output_of("--list " .. manager .. " build")
      assert.equal("0", code)
      assert.truthy(text:find(names, 1, true), text)
      assert.falsy(text:find("?", 1, true), text)
    end
  end)

  it("exits with code 2 for arguments that it does not understand", function()
    for words, told in pairs {
      ["--list brew"] = "expected apt, dnf, pacman or apk, got 'brew'",
      ["--list apt nonsense"] = "unknown group 'nonsense' (known: build",
      ["--list dnf bench"] = "'bench' is for Debian and Ubuntu",
      nonsense = "unknown group 'nonsense'",
    } do
      local text, code = output_of(words)
      assert.equal("2", code)
      assert.truthy(text:find(told, 1, true), text)
    end
  end)

  it("runs on Linux only, and reports it in one line", function()
    local folder = os.tmpname()
    os.remove(folder)
    os.execute("mkdir " .. folder)
    local uname = folder .. "/uname"
    local file = io.open(uname, "w")
    file:write "#!/bin/sh\necho Darwin\n"
    file:close()
    os.execute("chmod +x " .. uname)
    local pipe = io.popen(("PATH=%s:$PATH scripts/install-deps.sh build 2>&1; echo code $?"):format(folder))
    assert.equal("install-deps: accelhost runs on Linux only; this is Darwin\ncode 1\n", pipe:read "*a")
    pipe:close()
    os.execute("rm -r " .. folder)
  end)
end)
