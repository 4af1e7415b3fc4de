<?php
// What a web server does for MediaWiki: its scripts are under /w/, every other path is a page's.
$root = '/usr/share/mediawiki';
$path = strtok($_SERVER['REQUEST_URI'], '?');
$script = preg_match('~^/w/(index|api|load|rest)\.php(?:/|$)~', $path, $found) ? $found[1] : 'index';
$_SERVER['SCRIPT_NAME'] = $_SERVER['PHP_SELF'] = "/w/$script.php";
$_SERVER['SCRIPT_FILENAME'] = "$root/$script.php";
unset($_SERVER['PATH_INFO']);
chdir($root);
require "$root/$script.php";
