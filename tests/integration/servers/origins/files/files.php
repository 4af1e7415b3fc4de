<?php // A front controller that looks a decoded path up among files. Usage: FILES=DIRECTORY php -S ADDRESS files.php
$path = rawurldecode(explode('?', $_SERVER['REQUEST_URI'], 2)[0]);
$root = realpath(getenv('FILES'));
$file = realpath($root . '/' . $path);
if ($file === false || !str_starts_with($file, $root . '/') || !is_file($file)) {
    http_response_code(404);
    exit;
}
readfile($file);
