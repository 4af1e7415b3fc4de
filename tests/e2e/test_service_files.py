"""`univocal files`: the files of deploy/ that a service needs."""

from univocal_app.commands.service_files import SERVICE_FILES


def test_every_file_is_listed_with_its_place(univocal_inside, root):
    listed = univocal_inside("files").stdout.splitlines()
    assert [line.split()[0] for line in listed] == list(SERVICE_FILES)
    deployed = {path.relative_to(root / "deploy") for path in (root / "deploy").rglob("*") if path.is_file()}
    alone = {str(path) for path in deployed if path.parts[0] != "compose"}
    assert {each.path for each in SERVICE_FILES.values()} == alone


def test_a_file_is_printed_as_it_is(univocal_inside, root):
    printed = univocal_inside("files", "univocal.socket").stdout
    assert printed == (root / "deploy/systemd/univocal.socket").read_text("utf-8")


def test_files_are_written_and_none_is_overwritten_unasked(univocal_inside, tmp_path):
    written = univocal_inside("files", "--to", str(tmp_path))
    assert written.stdout.splitlines() == [str(tmp_path / name) for name in SERVICE_FILES]
    (tmp_path / "univocal.service").write_text("my own")
    again = univocal_inside("files", "univocal.socket", "univocal.service", "--to", str(tmp_path))
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert (tmp_path / "univocal.service").read_text() == "my own"
    forced = univocal_inside("files", "univocal.service", "--to", str(tmp_path), "--force")
    assert forced.returncode == 0
    assert (tmp_path / "univocal.service").read_text() == SERVICE_FILES["univocal.service"].text()


def test_an_unknown_name_is_refused_with_the_known_ones(univocal_inside, tmp_path):
    refused = univocal_inside("files", "nginx.conf")
    assert refused.returncode == 2
    assert "univocal.socket" in refused.stderr
    nowhere = univocal_inside("files", "--to", str(tmp_path / "none"))
    assert (nowhere.returncode, "Traceback" in nowhere.stderr) == (2, False)
