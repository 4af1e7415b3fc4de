import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import org.apache.catalina.Context;
import org.apache.catalina.servlets.DefaultServlet;
import org.apache.catalina.startup.Tomcat;

/** Files of a directory, and a servlet that tells a secret. Usage: DIRECTORY PORT WORK */
public class TomcatFiles {
    public static class Secret extends HttpServlet {
        @Override
        protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
            response.getWriter().write("S3CRET");
        }
    }

    public static void main(String[] args) throws Exception {
        Tomcat tomcat = new Tomcat();
        tomcat.setBaseDir(args[2]);
        tomcat.setPort(Integer.parseInt(args[1]));
        tomcat.getConnector();
        Context context = tomcat.addContext("", args[0]);
        Tomcat.addServlet(context, "files", new DefaultServlet());
        context.addServletMappingDecoded("/", "files");
        Tomcat.addServlet(context, "secret", new Secret());
        context.addServletMappingDecoded("/admin/*", "secret");
        tomcat.start();
        tomcat.getServer().await();
    }
}
