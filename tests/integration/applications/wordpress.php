<?php
// What a web server does for WordPress: scripts that there are, and index.php for every other path. With "install" on
// the command line: makes the blog, and prints an application's password for its owner.
$root = '/usr/share/wordpress';
define('ABSPATH', getenv('BLOG') . '/');
if (PHP_SAPI === 'cli') {
    $_SERVER += ['HTTP_HOST' => 'blog.example', 'SERVER_PROTOCOL' => 'HTTP/1.1', 'REQUEST_METHOD' => 'GET'];
    define('WP_INSTALLING', true);
    require ABSPATH . 'wp-config.php';
    require "$root/wp-admin/includes/upgrade.php";
    $made = wp_install('Blog', 'owner', 'owner@blog.example', true, '', 'a long enough one');
    switch_theme('plain');
    update_option('permalink_structure', '/%postname%/');
    flush_rewrite_rules();
    [$password] = WP_Application_Passwords::create_new_application_password($made['user_id'], ['name' => 'test']);
    echo "\nPASSWORD $password\n";
    exit;
}
$path = strtok($_SERVER['REQUEST_URI'], '?');
$script = preg_match('~^/(wp-[a-z-]+\.php|wp-admin/[a-z-]+\.php)$~', $path, $found) ? $found[1] : 'index.php';
$_SERVER['SCRIPT_NAME'] = $_SERVER['PHP_SELF'] = "/$script";
$_SERVER['SCRIPT_FILENAME'] = "$root/$script";
unset($_SERVER['PATH_INFO']);
require "$root/$script";
